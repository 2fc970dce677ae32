"""Messages without end on their way in: NDJSON, stored line by line as it comes.

Nothing is asked of the caller but to send; however long that takes, little is held here.  The
lines are stored in their order, some hundred at a time.  The first line that is wrong, or cannot
be stored, ends it: what came before is stored, and the answer says how far it got.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from waystation.client.accumulator import NewRecord
from waystation.client.producer import Producer
from waystation.gateway.checking import NOT_JSON, decoded
from waystation.gateway.incoming import Incoming, Slice
from waystation.gateway.once import ONCE_HEADER, StreamKeys
from waystation.gateway.payloads import NewMessage
from waystation.gateway.problems import PROBLEM_JSON, Problem, ProblemError, problem_of, refusal
from waystation.gateway.producing import stored_one, stored_together
from waystation.gateway.routes import JSON, NDJSON, Call, Reply, Route
from waystation.gateway.topics import TopicParams
from waystation.model.errors import WaystationError

__all__ = ["bulk_in_routes"]

_AT_ONCE: Final = 256
_TOGETHER_BYTES: Final = 256 << 10
_TURN: Final = 256
_decode: Final = msgspec.json.Decoder(NewMessage).decode
_decode_lines: Final = msgspec.json.Decoder(NewMessage).decode_lines


class StreamEnd(msgspec.Struct, frozen=True):
    """Why not all of it was stored."""

    line: int
    """The first line that was not, counted from 1."""
    problem: Problem


class Streamed(msgspec.Struct, frozen=True):
    """What became of the lines."""

    stored: int
    """How many messages are stored."""
    ended: StreamEnd | None
    """The first line that was not; ``null`` if all were.  A few lines after it may be stored."""


class _Gathered:
    """Lines that wait to be stored together, and the first that cannot be."""

    def __init__(self) -> None:
        self.lines: list[int] = []
        self.messages: list[NewMessage] = []
        self.records: list[NewRecord] = []
        self.ended: StreamEnd | None = None
        self.size_bytes = 0

    def add(self, some: Slice) -> None:
        """Take lines in, up to the first that is wrong.

        HOT: once per message; only a slice with a mistake pays for knowing where it is.
        """
        self.size_bytes += len(some.content)
        try:
            messages = _decode_lines(some.content)
            records = [one.record() for one in messages]
            for one in messages:
                one.timing()
        except (*NOT_JSON, ProblemError):
            self._add_each(some)
            return
        lines: Sequence[int] = range(some.number, some.number + len(messages))
        if len(messages) != some.lines:  # some are empty
            numbered = enumerate(some.content.split(b"\n"), some.number)
            lines = [number for number, line in numbered if line.strip()]
        if len(lines) != len(messages):  # one is spread over several
            self._add_each(some)
            return
        self.lines += lines
        self.messages += messages
        self.records += records

    def _add_each(self, some: Slice) -> None:
        for number, line in enumerate(some.content.split(b"\n"), some.number):
            if not line.strip():
                continue
            try:
                message = decoded(_decode, line, f"line {number}")
                record = message.record(f"line {number}: ")
                message.timing(f"line {number}: ")
            except ProblemError as error:
                self.ended = StreamEnd(number, error.problem)
                return
            self.lines.append(number)
            self.messages.append(message)
            self.records.append(record)


class Intake:
    """The streams that come in at one node, ``most`` at once."""

    def __init__(self, most: int = _AT_ONCE) -> None:
        self._most, self._under_way = most, 0

    async def send_stream(self, call: Call[TopicParams, Incoming]) -> Reply:
        """Store lines for as long as they come; answered when the last is stored."""
        if self._under_way >= self._most:
            raise refusal(
                503,
                "too-many-streams",
                f"{self._under_way} streams come in already",
                remedy="send fewer at once, or to another node",
            )
        self._under_way += 1
        try:
            return await _taken_in(call)
        finally:
            self._under_way -= 1


async def _taken_in(call: Call[TopicParams, Incoming]) -> Reply:
    topic, body = call.parameters.topic, call.body
    keys = StreamKeys(call.headers)
    await call.clients.topic(topic)
    producer = await call.clients.producer()
    await producer.partitions_of(topic)
    stored, line, gathered = 0, 1, _Gathered()
    try:
        async with aclosing(body.slices()) as slices:
            async for some in slices:
                gathered.add(some)
                line = some.number + some.lines
                if gathered.size_bytes >= _TOGETHER_BYTES or gathered.ended is not None:
                    stored += await _stored(producer, topic, gathered, keys)
                    if gathered.ended is not None:
                        break
                    gathered = _Gathered()
    except ProblemError as error:
        gathered.ended = StreamEnd(line, error.problem)
    if gathered.records:
        stored += await _stored(producer, topic, gathered, keys)
    return await _answer(body, Streamed(stored, gathered.ended))


async def _stored(producer: Producer, topic: str, some: _Gathered, keys: StreamKeys) -> int:
    """How many of the lines are stored; ``some.ended`` is the first that is not."""
    if not keys.named and all(
        one.timing() is None and one.idempotency_key is None for one in some.messages
    ):
        outcomes: Sequence[object] = await stored_together(producer, topic, some.records)
    else:
        outcomes = await _one_by_one(producer, topic, some, keys)
    failed = 0
    for line, told in zip(some.lines, outcomes, strict=True):
        if isinstance(told, BaseException):
            if not isinstance(told, WaystationError):
                raise told
            if not failed:
                some.ended = StreamEnd(line, problem_of(told))
            failed += 1
    some.records.clear()
    return len(outcomes) - failed


async def _one_by_one(
    producer: Producer, topic: str, some: _Gathered, keys: StreamKeys
) -> Sequence[object]:
    """Messages that are for later, or have an idempotency key, and others among them."""

    async def stored(message: NewMessage, record: NewRecord) -> object:
        return await stored_one(producer, topic, record, message.timing(), keys.next(message))

    sending = []
    for message, record in zip(some.messages, some.records, strict=True):
        sending.append(asyncio.ensure_future(stored(message, record)))
        if len(sending) % _TURN == 0:
            await asyncio.sleep(0)
    return await asyncio.gather(*sending, return_exceptions=True)


async def _answer(body: Incoming, told: Streamed) -> Reply:
    if told.ended is None:
        return Reply(msgspec.json.encode(told))
    await body.discard()
    closing = ((b"connection", b"close"),)
    if told.stored:
        return Reply(msgspec.json.encode(told), 207, headers=closing)
    problem = told.ended.problem
    return Reply(msgspec.json.encode(problem), problem.status, PROBLEM_JSON.decode(), closing)


def bulk_in_routes(most: int = _AT_ONCE) -> list[Route]:
    """The call that takes streams in."""
    return [
        Route(
            method="POST",
            path="/v1/topics/{topic}/messages/stream",
            summary="Send messages without end, one per line",
            tag="messages",
            handler=Intake(most).send_stream,
            parameters=TopicParams,
            body=NewMessage,
            streamed=True,
            media_types=(NDJSON, JSON),  # one message on one line is both
            answer=Streamed,
            others={207: Streamed},
            header_fields=(ONCE_HEADER,),
            errors=(403, 422, 429, 504),
        ),
    ]
