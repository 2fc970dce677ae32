"""Idempotency keys for replicas that begin anew, asked of their leader before they do.

A log that begins where its leader's begins would know nothing of keys whose messages are gone.
They are gathered while the follower asks its leader again, as cuts are prepared (``cuts.py``).

1. A log begins anew only once it has the keys of everything before its beginning.
2. At most two partitions are gathered for at a time: a million keys are 48 MB.
3. A leader too old to tell is believed to have none.
"""

import asyncio
from typing import Final, NamedTuple

from waystation.broker.peers import Peers
from waystation.client.errors import error_of
from waystation.messages.once_keys import OnceKeysRequest, OnceKeysResponse
from waystation.model.errors import PeerUnreachableError, UnsupportedVersionError, WaystationError
from waystation.model.ids import LeaderEpoch, NodeId
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.runtime.tasks import Tasks
from waystation.storage.once_inheriting import Inheritance
from waystation.telemetry.logs import get_logger

_AT_ONCE: Final = 2
_NOTHING_BEFORE: Final = Offset(0)
_events = get_logger("replication")


class _Wanted(NamedTuple):
    leader: NodeId
    epoch: LeaderEpoch
    offset: Offset


class KeyGathering:
    """What partitions inherit that this broker follows; at most one attempt for each."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._inherited: dict[Partition, tuple[_Wanted, Inheritance]] = {}
        self._working: set[Partition] = set()
        self._some = asyncio.Semaphore(_AT_ONCE)
        self._tasks = Tasks()

    def ready(
        self, partition: Partition, leader: NodeId | None, epoch: LeaderEpoch, offset: Offset
    ) -> bool:
        """Whether the log can begin at ``offset`` at once; otherwise that is being seen to."""
        self._inherited = {
            one: known
            for one, known in self._inherited.items()
            if not one.leading and one.leadership.epoch == known[0].epoch
        }
        if offset <= _NOTHING_BEFORE or leader is None:
            return True
        wanted, known = _Wanted(leader, epoch, offset), self._inherited.get(partition)
        if known is not None and known[0] == wanted and known[1].suits(partition.log, offset):
            return True
        if partition not in self._working:
            self._working.add(partition)
            self._tasks.spawn(self._work(partition, wanted), f"keys-{partition.name}")
        return False

    def begin(self, partition: Partition, offset: Offset) -> None:
        """Let the partition's log begin at ``offset``, with the keys that are ready."""
        known = self._inherited.pop(partition, None)
        if known is None:
            partition.start_at(offset)
        else:
            known[1].begin(partition.start_at)

    async def aclose(self) -> None:
        """Gather nothing more."""
        await self._tasks.aclose()

    async def _work(self, partition: Partition, wanted: _Wanted) -> None:
        try:
            async with self._some:
                pages = await self._pages(partition, wanted)
                inherited = Inheritance(partition.log, wanted.offset, pages)
                await asyncio.to_thread(inherited.work)
                self._inherited[partition] = wanted, inherited
        except (WaystationError, OSError) as error:
            _events.warning("keys.not.gathered", partition=str(partition.name), reason=str(error))
        finally:
            self._working.discard(partition)

    async def _pages(self, partition: Partition, wanted: _Wanted) -> list[bytes]:
        """All that the leader knows of committed messages.

        What it was asked for lies before that, unless an unclean election has left it with less
        than this replica: then there is nothing more to know.
        """
        pages: list[bytes] = []
        end, page = -1, 0
        while page >= 0:
            request = OnceKeysRequest(
                topic_id=partition.topic_id,
                partition=partition.name.partition,
                leader_epoch=wanted.epoch,
                end=end,
                page=page,
            )
            try:
                told = await self._peers.ask(wanted.leader, request, OnceKeysResponse)
            except PeerUnreachableError as error:
                if isinstance(error.__cause__, UnsupportedVersionError):
                    return []
                raise
            if told.error_code:
                raise error_of(told.error_code, str(partition.name), told.error_message)
            end, page = told.end, told.next_page
            pages.append(told.keys)
        return pages
