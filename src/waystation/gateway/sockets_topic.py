"""A topic over a WebSocket: for a subscriber by itself, or a member of a consumer group.

Nothing is pushed without credit.  A subscriber by itself goes on by the id of the last message it
got, as over Server-Sent Events.  A member commits over its socket what it has processed, and
nothing is committed for it: what was not comes again, to somebody of the group.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from waystation.gateway.payloads import shown
from waystation.gateway.problems import refusal
from waystation.gateway.push_events import SOCKET
from waystation.gateway.push_member import consumer_of
from waystation.gateway.push_start import SubscribeParams, check_member, wanted_by
from waystation.gateway.push_subscriber import Subscriber, Wanted
from waystation.gateway.routes import Call
from waystation.gateway.sockets import Conversation, Socket, frame
from waystation.gateway.sockets_frames import (
    TOPIC_FRAMES,
    Commit,
    Committed,
    PartitionsFrame,
    Ready,
    Send,
    Sent,
)
from waystation.gateway.sockets_talk import Credits, Talk, check_credit, until_first
from waystation.model.ids import TopicPartition

if TYPE_CHECKING:
    from waystation.client.consumer import Consumer
    from waystation.client.metadata import TopicView
    from waystation.gateway.clients import Clients
    from waystation.gateway.push import Push

__all__ = ["TopicSocketParams", "topic_conversation"]

_BATCH: Final = 100
_POLL_MS: Final = 500
_encode: Final = msgspec.json.Encoder().encode


class TopicSocketParams(SubscribeParams, frozen=True):
    """Which messages, from where on, and how many to begin with."""

    credit: Annotated[
        int, Meta(ge=0, le=1_000_000, description="Credit to begin with; more is granted later.")
    ] = 0


async def topic_conversation(push: "Push", call: Call[TopicSocketParams, None]) -> Conversation:
    """What happens over the socket that is asked for."""
    clients, given = push.of(call.clients), call.parameters
    if given.group is not None:
        check_member(given)
        topic = await clients.topic(given.topic)
        push.members.check_room()
        return Conversation(_Member(push, clients, topic, given).talk)
    wanted = await wanted_by(clients, given)
    push.tails.check_room(wanted.topic, wanted.partition)
    return Conversation(_Alone(push, clients, given, wanted).talk)


async def sent(clients: "Clients", topic: str, said: Send) -> Sent:
    """Send what a client wants sent; answered once it is kept."""
    value, key, headers, partition, timestamp_ms = said.message.record("message.")
    timing = said.message.timing("message.")
    await clients.topic(topic)
    told = await (await clients.producer()).send(
        topic,
        value,
        key=key,
        headers=headers,
        partition=partition,
        timestamp=timestamp_ms,
        **(timing or {}),
    )
    return Sent(told.partition, told.offset, told.timestamp, said.ref)


class _Alone:
    """A subscriber by itself."""

    def __init__(
        self, push: "Push", clients: "Clients", given: TopicSocketParams, wanted: Wanted
    ) -> None:
        self._push, self._clients, self._given, self._wanted = push, clients, given, wanted
        self._subscriber: Subscriber | None = None

    async def talk(self, socket: Socket) -> None:
        push = self._push
        subscriber = self._subscriber = Subscriber(
            self._clients,
            push.tails,
            push.meters,
            self._wanted,
            SOCKET,
            socket.wire,
            credit=self._given.credit,
        )
        with push.meters.subscribed("socket"):
            await socket.say(Ready(subscriber.id))
            hearing = Talk(socket, TOPIC_FRAMES.client, self._grant, self._answer)
            await until_first(subscriber.run(), hearing.hear())

    def _grant(self, messages: int) -> None:
        assert self._subscriber is not None, "nothing is heard before it is there"
        check_credit(self._subscriber.credit or 0, messages)
        self._subscriber.grant(messages)

    async def _answer(self, said: Commit | Send) -> Any:
        match said:
            case Send():
                return await sent(self._clients, self._given.topic, said)
            case Commit():
                raise refusal(
                    400,
                    "no-group",
                    "there is no group to commit for",
                    field="type",
                    remedy="open the socket with group=NAME, or keep the id of the last message",
                )


class _Member:
    """A member of a group."""

    def __init__(
        self, push: "Push", clients: "Clients", topic: "TopicView", given: TopicSocketParams
    ) -> None:
        self._push, self._clients, self._topic, self._given = push, clients, topic, given
        self._credits = Credits(given.credit)
        self._consumer: Consumer | None = None

    async def talk(self, socket: Socket) -> None:
        async def assigned(partitions: Iterable[TopicPartition]) -> None:
            await socket.say(PartitionsFrame(assigned=[one.partition for one in partitions]))

        async def revoked(partitions: Iterable[TopicPartition]) -> None:
            await socket.say(PartitionsFrame(revoked=[one.partition for one in partitions]))

        push = self._push
        with push.members, push.meters.subscribed("socket-group"):
            async with consumer_of(self._clients, self._given, assigned, revoked) as consumer:
                self._consumer = consumer
                await socket.say(Ready())
                hearing = Talk(socket, TOPIC_FRAMES.client, self._credits.grant, self._answer)
                gone = push.members.until_gone(self._clients, self._topic)
                await until_first(self._push_all(consumer, socket), hearing.hear(), gone)

    async def _push_all(self, consumer: "Consumer", socket: Socket) -> None:
        credit = self._credits
        while True:
            if socket.wire.is_paused:
                await socket.wire.drained()
            if not credit.left:
                # Who takes nothing takes part in its group all the same.
                credit.changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_MS / 1_000):
                        await credit.changed.wait()
                await consumer.poll(0, 0)
                continue
            messages = await consumer.poll(_POLL_MS, min(credit.left, _BATCH))
            credit.left -= len(messages)
            if messages:
                told = shown(messages, self._given.values)
                socket.wire.write(b"".join(_message(_encode(one)) for one in told))
                self._push.meters.pushed.add(len(messages))

    async def _answer(self, said: Commit | Send) -> Any:
        match said:
            case Send():
                return await sent(self._clients, self._given.topic, said)
            case Commit(positions):
                assert self._consumer is not None, "nothing is heard before it is there"
                topic = self._given.topic
                await self._consumer.commit(
                    {(topic, one.partition): one.offset for one in positions}
                )
                return Committed(said.ref)


def _message(content: bytes) -> bytes:
    return frame(b'{"type":"message",' + content[1:])
