"""Messages on their way in: one, or many at once."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from waystation.client.accumulator import NewRecord
from waystation.client.outgoing import RecordMetadata
from waystation.client.producer import Producer
from waystation.client.schedule_descriptions import MessageId
from waystation.client.timing import Timing
from waystation.gateway.once import ONCE_HEADER, REPLAYED, once_key, once_keys
from waystation.gateway.payloads import NewMessage
from waystation.gateway.problems import BlamedError, Problem, ProblemError, problem_of, refusal
from waystation.gateway.routes import Call, Params, Reply, Route
from waystation.gateway.topics import TopicParams
from waystation.model.errors import ErrorCode, WaystationError

__all__ = ["PRODUCING", "stored_one", "stored_together"]

_TURN: Final = 256
_TIMES: Final = ("deliver_at", "deliver_after", "deliver_cron")


class Batch(Params, frozen=True):
    """Messages to send; those of one partition keep their order."""

    messages: Annotated[list[NewMessage], msgspec.Meta(min_length=1)]


class Place(msgspec.Struct, frozen=True):
    """Where a message is kept; ``schedule_id`` names one that waits for its time.

    ``replayed`` is there if it was sent with an idempotency key: whether it was kept before.
    """

    partition: int
    offset: int
    timestamp_ms: int
    schedule_id: str | msgspec.UnsetType = msgspec.UNSET
    replayed: bool | msgspec.UnsetType = msgspec.UNSET


class Outcome(msgspec.Struct, frozen=True):
    """What became of one message of many: its place, or why it has none."""

    place: Place | None
    problem: Problem | msgspec.UnsetType = msgspec.UNSET


class Outcomes(msgspec.Struct, frozen=True):
    """What became of each message, in the order they were given."""

    sent: int
    failed: int
    outcomes: list[Outcome]


async def send_message(call: Call[TopicParams, NewMessage]) -> Place | Reply:
    """Send one; answered once it is kept as acks=all asks.  HOT: benchmarks/gateway/posts.py."""
    topic, message = call.parameters.topic, call.body
    record, timing, key = message.record(), message.timing(), once_key(call.headers, message)
    await call.clients.topic(topic)
    place = await stored_one(await call.clients.producer(), topic, record, timing, key)
    if place.replayed is True:
        return Reply(msgspec.json.encode(place), headers=REPLAYED)
    return place


async def send_messages(call: Call[TopicParams, Any]) -> Reply:
    """Send many; a mistake in any of them is told before any is sent."""
    topic = call.parameters.topic
    messages: Sequence[NewMessage] = (
        call.body if isinstance(call.body, list) else call.body.messages
    )
    if not messages:
        raise refusal(
            400,
            "invalid-field",
            "there are no messages",
            field="messages",
            remedy="send at least one",
        )
    keys = once_keys(call.headers, messages)
    records, timings = await _all_ready(messages)
    await call.clients.topic(topic)
    producer = await call.clients.producer()
    if keys is None:
        return await _answer(await _all_sent(producer, topic, records, timings))
    return await _answer(await _all_once(producer, topic, records, timings, keys))


async def _answer(told: Sequence[object]) -> Reply:
    """``Outcomes`` of what was told of each, made in turns of the loop that stay short."""
    failed, pieces = 0, []
    for begin in range(0, len(told), _TURN):
        if begin:
            await asyncio.sleep(0)
        outcomes = [_outcome(one) for one in told[begin : begin + _TURN]]
        failed += sum(one.place is None for one in outcomes)
        pieces.append(msgspec.json.encode(outcomes)[1:-1])
    counts = len(told) - failed, failed
    body = b'{"sent":%d,"failed":%d,"outcomes":[%s]}' % (*counts, b",".join(pieces))
    return Reply(body, 207 if failed else 200)


async def _all_ready(messages: Sequence[NewMessage]) -> tuple[list[NewRecord], dict[int, Timing]]:
    """All as they are sent, and the times of those that are for later.

    HOT: once per message; only one that is wrong pays for knowing where it stands.
    """
    records, timings = [], {}
    for number, message in enumerate(messages):
        try:
            records.append(message.record())
            timing = message.timing()
        except ProblemError:
            at = f"messages[{number}]."
            message.record(at)
            message.timing(at)
            raise
        if timing is not None:
            timings[number] = timing
        if number % _TURN == _TURN - 1:
            await asyncio.sleep(0)
    return records, timings


async def _all_sent(
    producer: Producer, topic: str, records: list[NewRecord], timings: Mapping[int, Timing]
) -> list[object]:
    """What became of each; those for later are sent one by one, all others together."""
    plain = records
    if timings:
        plain = [one for number, one in enumerate(records) if number not in timings]
    told: list[object] = [*await stored_together(producer, topic, plain)]
    waiting = {
        number: asyncio.ensure_future(stored_one(producer, topic, records[number], timing))
        for number, timing in timings.items()
    }
    for number, one in waiting.items():
        await asyncio.wait([one])
        told.insert(number, one.exception() or one.result())
    return told


async def _all_once(
    producer: Producer,
    topic: str,
    records: list[NewRecord],
    timings: Mapping[int, Timing],
    keys: list[str],
) -> list[object]:
    """What became of each message that has an idempotency key."""
    waiting = []
    for number, (record, key) in enumerate(zip(records, keys, strict=True)):
        sending = stored_one(producer, topic, record, timings.get(number), key)
        waiting.append(asyncio.ensure_future(sending))
        if number % _TURN == _TURN - 1:
            await asyncio.sleep(0)
    for one in waiting:
        if not one.done():
            await asyncio.wait([one])
    return [one.exception() or one.result() for one in waiting]


async def stored_together(
    producer: Producer, topic: str, records: list[NewRecord]
) -> list[RecordMetadata | WaystationError]:
    """Where each record went; handed over in turns of the loop that stay short."""
    await producer.partitions_of(topic)
    sent, begin = [], 0
    while begin < len(records):
        submitted = producer.submit_many(topic, records[begin : begin + _TURN])
        sent.append(submitted)
        begin += submitted.taken
        if begin < len(records):
            await producer.drain()
    told = await sent.pop(0).outcomes() if sent else []
    for one in sent:
        told += await one.outcomes()
        await asyncio.sleep(0)
    return told


async def stored_one(
    producer: Producer,
    topic: str,
    record: NewRecord,
    timing: Timing | None,
    once: str | None = None,
) -> Place:
    """Where a record went that is for later or has an idempotency key, or any other."""
    value, key, headers, partition, timestamp_ms = record
    try:
        told = await producer.send(
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp=timestamp_ms,
            idempotency_key=once,
            **(timing or {}),
        )
    except WaystationError as error:
        if timing is None:
            raise
        raise _untimely(topic, timing, error) from None
    name = msgspec.UNSET if timing is None else str(MessageId(told.partition, told.offset))
    replayed = msgspec.UNSET if once is None else told.replayed
    return Place(told.partition, told.offset, told.timestamp, name, replayed)


def _untimely(topic: str, timing: Timing, error: WaystationError) -> WaystationError:
    """The error, and that the time is to blame where it is: of a topic, or of this very message."""
    field = next(name for name in _TIMES if name in timing)
    if error.code is ErrorCode.INVALID_REQUEST:
        allow = f'PATCH /v1/topics/{topic}/config with {{"set": {{"schedule.enable": "true"}}}}'
        return BlamedError(error, field, f"{allow} allows it")
    if error.code is ErrorCode.INVALID_RECORD:
        return BlamedError(error, field, "another time, as the detail says")
    return error


def _outcome(told: object) -> Outcome:
    if isinstance(told, RecordMetadata):
        return Outcome(Place(told.partition, told.offset, told.timestamp))
    if isinstance(told, Place):
        return Outcome(told)
    if isinstance(told, WaystationError):
        return Outcome(None, problem_of(told))
    assert isinstance(told, BaseException), f"{told!r} is no outcome"
    raise told


PRODUCING = [
    Route(
        method="POST",
        path="/v1/topics/{topic}/messages",
        summary="Send a message",
        tag="messages",
        handler=send_message,
        parameters=TopicParams,
        body=NewMessage,
        many="/v1/topics/{topic}/messages/batch",
        answer=Place,
        header_fields=(ONCE_HEADER,),
        errors=(403, 422, 429, 504),
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
        header_fields=(ONCE_HEADER,),
        errors=(403, 429, 504),
    ),
]
