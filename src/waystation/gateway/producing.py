"""Messages on their way in: one, or many at once."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from waystation.client.errors import BufferFullError
from waystation.client.outgoing import RecordMetadata
from waystation.client.producer import Producer
from waystation.client.schedule_descriptions import MessageId
from waystation.client.timing import Timing
from waystation.gateway.payloads import NewMessage
from waystation.gateway.problems import Problem, ProblemError, problem_of, refusal
from waystation.gateway.routes import Call, Params, Reply, Route
from waystation.gateway.topics import TopicParams
from waystation.model.errors import WaystationError
from waystation.records.record import Headers

__all__ = ["PRODUCING"]

_TURN: Final = 256


class Batch(Params, frozen=True):
    """Messages to send; those of one partition keep their order."""

    messages: Annotated[list[NewMessage], msgspec.Meta(min_length=1)]


class Place(msgspec.Struct, frozen=True):
    """Where a message is kept; ``schedule_id`` names one that waits for its time."""

    partition: int
    offset: int
    timestamp_ms: int
    schedule_id: str | msgspec.UnsetType = msgspec.UNSET


class Outcome(msgspec.Struct, frozen=True):
    """What became of one message of many: its place, or why it has none."""

    place: Place | None
    problem: Problem | msgspec.UnsetType = msgspec.UNSET


class Outcomes(msgspec.Struct, frozen=True):
    """What became of each message, in the order they were given."""

    sent: int
    failed: int
    outcomes: list[Outcome]


async def send_message(call: Call[TopicParams, NewMessage]) -> Place:
    """Send one; answered once it is kept as acks=all asks.  HOT: benchmarks/gateway/posts.py."""
    topic, message = call.parameters.topic, call.body
    ready = _ready(message)
    await call.clients.topic(topic)
    return await _sent(await call.clients.producer(), topic, message, ready)


async def send_messages(call: Call[TopicParams, Any]) -> Reply:
    """Send many; a mistake in any of them is told before any is sent."""
    topic = call.parameters.topic
    messages: Sequence[NewMessage] = (
        call.body if isinstance(call.body, list) else call.body.messages
    )
    if not messages:
        raise refusal(400, "invalid-field", "there are no messages", remedy="send at least one")
    ready = []
    for number, message in enumerate(messages):
        ready.append(_ready(message, f"messages[{number}]."))
        if number % _TURN == _TURN - 1:
            await asyncio.sleep(0)
    await call.clients.topic(topic)
    producer = await call.clients.producer()
    waiting = []
    for number, (message, parts) in enumerate(zip(messages, ready, strict=True)):
        while (sent := _submitted(producer, topic, message, parts)) is None:
            await producer.drain()
        waiting.append(sent)
        if number % _TURN == _TURN - 1:
            await producer.drain()
    for one in waiting:
        if not one.done():  # most are, with the first of their batch
            await asyncio.wait([one])
    outcomes = [_outcome(one) for one in waiting]
    failed = sum(one.place is None for one in outcomes)
    answer = Outcomes(len(outcomes) - failed, failed, outcomes)
    return Reply(msgspec.json.encode(answer), 207 if failed else 200)


class _Ready(NamedTuple):
    value: bytes | None
    key: bytes | None
    headers: Headers
    timing: Timing | None


def _ready(message: NewMessage, at: str = "") -> _Ready:
    try:
        return _Ready(
            message.value_bytes(at),
            message.key_bytes(at),
            message.header_pairs(at),
            message.timing(at),
        )
    except (UnicodeError, msgspec.DecodeError) as error:
        raise _not_text(error, at) from None


async def _sent(producer: Producer, topic: str, message: NewMessage, ready: _Ready) -> Place:
    told = await producer.send(
        topic,
        ready.value,
        key=ready.key,
        headers=ready.headers,
        partition=message.partition,
        timestamp=message.timestamp_ms,
        **(ready.timing or {}),
    )
    return _place(told, timed=ready.timing is not None)


def _submitted(
    producer: Producer, topic: str, message: NewMessage, ready: _Ready
) -> "asyncio.Future[Any] | None":
    """Under way, behind all that were given before it; ``None`` while there is no room."""
    if ready.timing is not None:
        return asyncio.ensure_future(_sent(producer, topic, message, ready))
    try:
        return producer.submit(
            topic,
            ready.value,
            key=ready.key,
            headers=ready.headers,
            partition=message.partition,
            timestamp=message.timestamp_ms,
        )
    except BufferFullError:
        return None
    except WaystationError as error:
        failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        return failed


def _outcome(done: "asyncio.Future[Any]") -> Outcome:
    error = done.exception()
    if error is None:
        told = done.result()
        return Outcome(told if isinstance(told, Place) else _place(told, timed=False))
    if isinstance(error, WaystationError):
        return Outcome(None, problem_of(error))
    raise error


def _place(told: RecordMetadata, *, timed: bool) -> Place:
    if timed:
        name = str(MessageId(told.partition, told.offset))
        return Place(told.partition, told.offset, told.timestamp, name)
    return Place(told.partition, told.offset, told.timestamp)


def _not_text(error: Exception, at: str) -> ProblemError:
    return refusal(
        400,
        "invalid-field",
        f"what is not text cannot be sent as text: {error}",
        field=f"{at}value" if at else "value",
        remedy="UTF-8 without lone surrogates, or value_base64",
    )


PRODUCING = [
    Route(
        method="POST",
        path="/v1/topics/{topic}/messages",
        summary="Send a message",
        tag="messages",
        handler=send_message,
        parameters=TopicParams,
        body=NewMessage,
        answer=Place,
        errors=(403, 429, 504),
    ),
    Route(
        method="POST",
        path="/v1/topics/{topic}/messages/batch",
        summary="Send many messages, as JSON or one per line",
        tag="messages",
        handler=send_messages,
        parameters=TopicParams,
        body=Batch,
        lines=NewMessage,
        answer=Outcomes,
        others={207: Outcomes},
        errors=(403, 429, 504),
    ),
]
