"""A queue over a WebSocket: messages as credit allows, settled over the same socket.

What was pushed is this socket's until its lease is over.  Promises, beside those of every queue
(``client/queue.py``):

1. no more messages are held than credit was granted for, nor than ``_MOST_HELD``;
2. when the socket goes, what it held is given back at once, as delivered once more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from waystation.client.message import Message
from waystation.client.queue_errors import NotHeldError
from waystation.gateway.groups import GroupName
from waystation.gateway.payloads import Values, shown
from waystation.gateway.routes import Call, Params
from waystation.gateway.sockets import Conversation, Socket, frame
from waystation.gateway.sockets_frames import (
    QUEUE_FRAMES,
    Ack,
    Extend,
    Nack,
    Ready,
    Refused,
    Send,
    Settled,
)
from waystation.gateway.sockets_talk import Credits, Talk, until_first
from waystation.gateway.sockets_topic import sent
from waystation.gateway.topics import TopicName
from waystation.model.ids import TopicPartition

if TYPE_CHECKING:
    from waystation.client.queue import Queue, QueueMessage
    from waystation.gateway.clients import Clients
    from waystation.gateway.push import Push

__all__ = ["QueueSocketParams", "queue_conversation"]

_BATCH: Final = 100
_WAIT_MS: Final = 30_000
_LOOK_S: Final = 1.0
_MOST_HELD: Final = 1_000
_NOT_HELD: Final = "is not held by this socket: it was settled, or its lease is over"
_encode: Final = msgspec.json.Encoder().encode


class QueueSocketParams(Params, frozen=True):
    """Which queue, and how many messages to begin with."""

    queue: TopicName
    group: (
        Annotated[GroupName, Meta(description="The group that reads it; of the queue's own name.")]
        | None
    ) = None
    values: Annotated[
        Values, Meta(description="How values are shown: what is not text, or not JSON, as base64.")
    ] = "text"
    credit: Annotated[
        int, Meta(ge=0, le=1_000_000, description="Credit to begin with; more is granted later.")
    ] = 0


async def queue_conversation(push: "Push", call: Call[QueueSocketParams, None]) -> Conversation:
    """What happens over the socket that is asked for."""
    clients, given = push.of(call.clients), call.parameters
    await clients.topic(given.queue)
    push.members.check_room()
    return Conversation(_Consumer(push, clients, given).talk)


class _Consumer:
    """A consumer of a queue."""

    def __init__(self, push: "Push", clients: "Clients", given: QueueSocketParams) -> None:
        self._push, self._clients, self._given = push, clients, given
        self._credits = Credits(given.credit)
        self._held: dict[str, QueueMessage] = {}
        self._queue: Queue | None = None

    async def talk(self, socket: Socket) -> None:
        push, given = self._push, self._given
        with push.members, push.meters.subscribed("socket-queue"):
            own = push.queues.of(self._clients, given.queue, given.group, self._held)
            async with own as self._queue:
                await socket.say(Ready())
                hearing = Talk(socket, QUEUE_FRAMES.client, self._credits.grant, self._answer)
                await until_first(self._push_all(self._queue, socket), hearing.hear())

    async def _push_all(self, queue: "Queue", socket: Socket) -> None:
        credit = self._credits
        while True:
            if socket.wire.is_paused:
                await socket.wire.drained()
            most = min(credit.left, _BATCH, self._room())
            if not most:
                credit.changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await credit.changed.wait()
                continue
            messages = await queue.receive(most, _WAIT_MS)
            credit.left -= len(messages)
            self._held |= {one.id: one for one in messages}
            if messages:
                socket.wire.write(b"".join(self._shown(messages)))
                self._push.meters.pushed.add(len(messages))

    def _room(self) -> int:
        """How many more may be held; those whose lease is over are held no longer."""
        if len(self._held) >= _MOST_HELD:
            for name in [name for name, one in self._held.items() if not one.is_held]:
                del self._held[name]
        return _MOST_HELD - len(self._held)

    def _shown(self, messages: "Sequence[QueueMessage]") -> list[bytes]:
        plain = [Message(*one[:7]) for one in messages]
        return [
            frame(
                b'{"type":"message","id":"%s","deliveries":%d,"lease_ms":%d,%s'
                % (one.id.encode(), one.deliveries, one.seconds_left * 1_000, _encode(told)[1:])
            )
            for one, told in zip(messages, shown(plain, self._given.values), strict=True)
        ]

    # --- what the client says -------------------------------------------------------------------

    async def _answer(self, said: Ack | Nack | Extend | Send) -> Any:
        queue = self._queue
        assert queue is not None, "nothing is heard before it is there"
        match said:
            case Send():
                return await sent(self._clients, self._given.queue, said)
            case Ack():
                return await self._settled(said, queue.ack)
            case Nack(requeue=requeue, delay=delay):
                return await self._settled(
                    said, lambda these: queue.nack(these, requeue=requeue, delay=delay)
                )
            case Extend():
                return await self._settled(said, lambda these: _extended(queue, these))

    async def _settled(
        self,
        said: Ack | Nack | Extend,
        settle: "Callable[[list[QueueMessage]], Awaitable[None]]",
    ) -> Settled | None:
        """Settle what is held; who does not ask for an answer hears of what went wrong only."""
        ids = dict.fromkeys(said.ids)
        these = [self._held[one] for one in ids if one in self._held]
        refused = [Refused(one, _NOT_HELD) for one in ids if one not in self._held]
        if not isinstance(said, Extend):
            for one in these:
                del self._held[one.id]
            self._credits.changed.set()
        if these:
            try:
                await settle(these)
            except NotHeldError as error:
                refused += [
                    Refused(f"{where.partition}-{offset}", why)
                    for where, offset, why in error.refused
                ]
        if said.ref is None and not refused:
            return None
        return Settled(len(ids) - len(refused), refused, said.ref)


async def _extended(queue: "Queue", messages: "Sequence[QueueMessage]") -> None:
    refused: list[tuple[TopicPartition, int, str]] = []
    for one in await asyncio.gather(*map(queue.extend, messages), return_exceptions=True):
        if isinstance(one, NotHeldError):
            refused += one.refused
        elif isinstance(one, BaseException):
            raise one
    if refused:
        raise NotHeldError(refused)
