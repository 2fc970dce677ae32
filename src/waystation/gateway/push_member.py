"""Members of consumer groups that are pushed to; each has a consumer of its own.

As Server-Sent Events a member cannot say what it has processed.  So its group's place is committed
as soon as the network has taken the events, and never before: what this node still holds when it
dies, or when the caller goes, is somebody else's, while what is on its way counts as read.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from waystation.client.errors import is_retriable
from waystation.client.message import Message
from waystation.gateway.payloads import shown
from waystation.gateway.problems import refusal
from waystation.gateway.push_events import plain_event
from waystation.gateway.push_meters import PushMeters
from waystation.gateway.push_start import SubscribeParams
from waystation.gateway.push_tails import Looks
from waystation.gateway.sockets_talk import until_first
from waystation.gateway.streams import Wire, chunk
from waystation.model.errors import (
    FencedMemberEpochError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberError,
    WaystationError,
)

if TYPE_CHECKING:
    from waystation.client.consumer import Consumer
    from waystation.client.listeners import Listener
    from waystation.client.metadata import TopicView
    from waystation.gateway.clients import Clients

__all__ = ["Members", "consumer_of"]

_MOST: Final = 512
_BATCH: Final = 100
_PREFETCH_BYTES: Final = 1 << 20
_HEARTBEAT_MS: Final = 1_000  # how soon a member hears that others come or go
_SESSION_MS: Final = 10_000  # how soon the members of a node that died are missed
_LOOK_S: Final = 2.0
_PASSING: Final = (
    RebalanceInProgressError,
    UnknownMemberError,
    IllegalGenerationError,
    FencedMemberEpochError,
)


class Members:
    """Counts those who need a client of their own."""

    def __init__(self) -> None:
        self._count = 0
        self._looks = Looks()

    def check_room(self) -> None:
        """Refuse one more if there are enough."""
        if self._count >= _MOST:
            raise refusal(
                503,
                "too-many-members",
                f"{_MOST} members of groups and queues are connected here already",
                remedy="ask another node",
            )

    def __enter__(self) -> None:
        self.check_room()
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1

    async def until_gone(self, clients: "Clients", topic: "TopicView") -> None:
        """Raises once the topic is gone: of a group without partitions nobody would hear it."""
        since = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._looks.check(clients, topic, since)

    async def events(
        self,
        clients: "Clients",
        topic: "TopicView",
        given: SubscribeParams,
        limit: int | None,
        meters: PushMeters,
        wire: Wire,
    ) -> None:
        """Push to a member until it goes, has had ``limit`` messages, or the topic goes."""
        with self:
            async with consumer_of(clients, given) as consumer:
                pushing = _push(consumer, given, limit, meters, wire)
                await until_first(pushing, self.until_gone(clients, topic))


def consumer_of(
    clients: "Clients",
    given: SubscribeParams,
    on_assigned: "Listener | None" = None,
    on_revoked: "Listener | None" = None,
) -> "Consumer":
    """A member of the group that is asked for."""
    from waystation.client.consumer import Consumer

    bootstrap, connect = clients.further()
    return Consumer(
        given.group,
        [given.topic],
        bootstrap=bootstrap,
        connect=connect,
        where=given.where,
        on_assigned=on_assigned,
        on_revoked=on_revoked,
        on_lost=on_revoked,
        client_id="gateway-push",
        auto_offset_reset=given.begin or "latest",
        isolation="read_committed",
        auto_commit=False,
        heartbeat_interval_ms=_HEARTBEAT_MS,
        session_timeout_ms=_SESSION_MS,
        prefetch_bytes=_PREFETCH_BYTES,
        fetch_partition_bytes=_PREFETCH_BYTES,
        fetch_max_bytes=_PREFETCH_BYTES,
    )


async def _push(
    consumer: "Consumer",
    given: SubscribeParams,
    limit: int | None,
    meters: PushMeters,
    wire: Wire,
) -> None:
    wire.hold_at_most(0)
    try:
        while limit is None or limit > 0:
            most = _BATCH if limit is None else min(limit, _BATCH)
            messages = await consumer.poll(given.heartbeat_ms, most)
            wire.write(_events(messages, given))
            meters.pushed.add(len(messages))
            if wire.is_paused:
                await wire.drained()
            if not wire.is_open:
                return  # what was not taken is not committed
            if messages:
                limit = None if limit is None else limit - len(messages)
                await _commit(consumer)
    finally:
        wire.hold_at_most(None)


async def _commit(consumer: "Consumer") -> None:
    """Keep how far it has got; if others have the partitions now, they repeat what was not kept."""
    try:
        await consumer.commit()
    except _PASSING:
        pass
    except WaystationError as error:
        if not is_retriable(error):
            raise


def _events(messages: list[Message], given: SubscribeParams) -> bytes:
    if not messages:
        return chunk(b": still here\n\n")
    return chunk(b"".join(map(plain_event, shown(messages, given.values))))
