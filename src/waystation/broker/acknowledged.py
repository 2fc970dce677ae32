"""How far queues are done with topics that name them in ``retention.after.ack``.

Such a topic keeps what its groups have not acknowledged, and lets go of what they have.

1. A position is what is stored: no crash brings messages back into a queue after they were
   deleted on its word.
2. Whatever keeps a position from being known, be it that the group has none yet, or that its
   coordinator does not answer, lets nothing go; nor does what it knew of messages that were lost.
3. Only a cap in bytes takes what a group has not acknowledged, and says so aloud.

The rule itself is in ``sharing/retention.py``.  A group may be a queue's, or one of consumers:
then what it has committed counts.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from waystation.broker.archives import Archives
from waystation.broker.queue_loading import lineage_of
from waystation.broker.replicas import Replicas
from waystation.cluster.parts import INTERNAL_TOPICS
from waystation.model.errors import WaystationError
from waystation.model.ids import NO_LEADER_EPOCH, LeaderEpoch, TopicId
from waystation.model.offsets import Millis, Offset
from waystation.partition.partition import Partition
from waystation.sharing.persister import Persister, StateSummary, Summarize
from waystation.sharing.retention import droppable, settled_before
from waystation.sharing.state_records import QueueId
from waystation.storage.retention import ROLL_BYTES, drop, fits_from
from waystation.telemetry.logs import get_logger

_events = get_logger("queues")

_PATIENCE_S: Final = 1.0
# A cap is kept by deleting whole segments: so many of them fit into it at least.
_SEGMENTS_IN_CAP: Final = 4

_Place = tuple[str, TopicId, int]


class Hold(NamedTuple):
    """What is kept for the sake of groups: everything from an offset on."""

    kept_from: Offset
    droppable_before: Offset
    robbed: tuple[str, ...] = ()


class Acknowledged:
    """The positions as they were last asked for."""

    def __init__(
        self,
        persister: Persister,
        has_queues: Callable[[], bool],
        archives: Archives,
        replicas: Replicas,
    ) -> None:
        """``has_queues`` says whether any share group ever was."""
        self._persister = persister
        self._has_queues = has_queues
        self._archives = archives
        self._replicas = replicas
        self._positions: dict[_Place, Offset] = {}

    async def look(self) -> None:
        """Ask the groups that topics name how far they are; no topic names any, nobody is asked."""
        waiting: dict[str, list[Partition]] = {}
        for partition in self._replicas:
            if partition.leading:
                for group_id in groups_of(partition):
                    waiting.setdefault(group_id, []).append(partition)
        found: dict[_Place, Offset] = {}
        for group_id, partitions in waiting.items():
            found.update(await self._positions_of(group_id, partitions))
        self._positions = found

    def hold(self, partition: Partition) -> Hold | None:
        """What must be kept of a partition, and what may go; ``None`` if it waits for nobody."""
        groups = groups_of(partition)
        if not groups:
            return None
        topic_id, number = partition.topic_id, partition.name.partition
        positions = {one: self._positions.get((one, topic_id, number)) for one in groups}
        log, cap = partition.log, partition.settings.retention_after_ack_bytes
        over_cap = fits_from(log, cap) if cap >= 0 else None
        settled = settled_before(groups, positions)
        told = droppable(groups, positions, log.log_start, over_cap)
        kept_from = max(settled if settled is not None else log.log_start, told.before)
        return Hold(kept_from, told.before, told.robbed)

    def let_go(self, partition: Partition, hold: Hold, now: Millis, before: Offset) -> int:
        """Delete what may go and lies before ``before``; the bytes that will be freed."""
        cap = partition.settings.retention_after_ack_bytes
        roll_bytes = ROLL_BYTES if cap < 0 else min(ROLL_BYTES, max(1, cap // _SEGMENTS_IN_CAP))
        freed = drop(partition.log, now, min(hold.droppable_before, before), roll_bytes)
        if freed and hold.robbed:
            _events.warning(
                "retention.robbed",
                partition=str(partition.name),
                groups=",".join(hold.robbed),
                deleted_before=partition.log.log_start,
                cap_bytes=cap,
            )
        return freed

    async def _positions_of(
        self, group_id: str, partitions: list[Partition]
    ) -> dict[_Place, Offset]:
        queues = {
            QueueId(group_id, partition.topic_id, partition.name.partition): partition
            for partition in partitions
        }
        starts = await self._starts(queues) if self._has_queues() else {}
        if starts:
            return {(*queue,): start for queue, start in starts.items()}
        committed = await self._archives.positions_of(group_id, partitions)
        return {(group_id, *place): offset for place, offset in committed.items()}

    async def _starts(self, queues: Mapping[QueueId, Partition]) -> dict[QueueId, Offset]:
        """Where queues begin by now: all before is settled, and stored to be so.

        What stands in the place of messages that an election lost was settled by nobody: what the
        queue's last leader cannot have seen does not count.
        """
        asked = [(queue, self._summary(queue)) for queue in queues]
        found: dict[QueueId, Offset] = {}
        _, pending = await asyncio.wait([future for _, future in asked], timeout=_PATIENCE_S)
        for queue, future in asked:
            if future in pending:
                continue
            answer = future.result()
            if isinstance(answer, StateSummary) and answer.start >= 0:
                found[queue] = min(answer.start, _seen(queues[queue], answer.leader_epoch))
            elif isinstance(answer, WaystationError):
                _events.debug("position.unknown", queue=str(queue), reason=str(answer))
        return found

    def _summary(self, queue: QueueId) -> "asyncio.Future[object]":
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def told(answer: object) -> None:
            if not future.done():
                future.set_result(answer)

        self._persister.summarize(Summarize(queue), told)
        return future


def _seen(partition: Partition, leader_epoch: LeaderEpoch) -> Offset:
    """How far a queue's last leader can have seen; before the first one, an administrator spoke."""
    log = lineage_of(partition)
    return log.log_end if leader_epoch == NO_LEADER_EPOCH else log.parts_from(leader_epoch)


def groups_of(partition: Partition) -> tuple[str, ...]:
    """The groups that a partition's messages are kept for."""
    if partition.name.topic in INTERNAL_TOPICS:
        return ()
    return partition.settings.retention_after_ack
