"""Messages with idempotency keys on their way out: each is stored at most once.

The partition's leader remembers the keys.  A message whose fate is not known is therefore sent
again, to whoever leads by then, until there is an answer or no time is left.  Two promises:

1. messages for one partition are sent in the order in which they were given;
2. one that is refused spoils no other.

While a request is on its way, those that come meanwhile wait and go together in the next one.
"""

import asyncio
from typing import Final, NamedTuple

from waystation.client.errors import ClosedError, error_of
from waystation.client.outgoing import RecordMetadata, ReplayedMetadata
from waystation.client.partitioner import partition_of_key
from waystation.client.router import Router
from waystation.messages.produce_once import OncePlace, ProduceOnceRequest, ProduceOnceResponse
from waystation.model.errors import (
    ErrorCode,
    InvalidRecordError,
    InvalidRequestError,
    RequestTimedOutError,
    WaystationError,
)
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder
from waystation.records.once import HEADER_NAME, check_key
from waystation.records.record import Headers
from waystation.runtime.tasks import Tasks

__all__ = ["IdempotencyConflictError", "OnceMessage", "OnceSender"]

_ATTEMPT_MS: Final = 8_000
_SILENT_MS: Final = 2_000
_RECORDS: Final = 128
_BYTES: Final = 256 << 10
_REPLAYED, _CONFLICT = 1, 2


class IdempotencyConflictError(InvalidRecordError):
    """Another message was stored under the same idempotency key."""

    def __init__(self, partition: TopicPartition, offset: Offset, key: str) -> None:
        self.partition, self.offset, self.key = partition, offset, key
        super().__init__(
            f"idempotency key {key!r} was used for another message, at offset {offset} of "
            f"{partition}: give each message a key of its own"
        )


class OnceMessage(NamedTuple):
    """A message as it is sent."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: Millis
    once_key: str


class _Waiting(NamedTuple):
    message: OnceMessage
    deadline_s: float
    stored: "asyncio.Future[RecordMetadata]"


class OnceSender:
    """Sends messages that have idempotency keys, through one router."""

    def __init__(self, router: Router, delivery_timeout_ms: int) -> None:
        self._router = router
        self._delivery_s = delivery_timeout_ms / 1_000
        self._tasks = Tasks()
        self._lanes: dict[TopicPartition, list[_Waiting]] = {}

    async def send(
        self, topic: str, message: OnceMessage, partition: int | None = None
    ) -> RecordMetadata:
        """Where the message is stored, now or since it was first sent.

        It goes to the partition of its key, or of its idempotency key if it has none.
        """
        once_key = _checked(message)
        if partition is None:
            known = await self._router.topic(topic)
            key = once_key if message.key is None else message.key
            partition = partition_of_key(key, len(known.partitions))
        return await self._submit(TopicPartition(topic, partition), message)

    def _submit(
        self, where: TopicPartition, message: OnceMessage
    ) -> "asyncio.Future[RecordMetadata]":
        loop = asyncio.get_running_loop()
        one = _Waiting(message, loop.time() + self._delivery_s, loop.create_future())
        lane = self._lanes.get(where)
        if lane is None:
            lane = self._lanes[where] = []
            self._tasks.spawn(self._drain(where, lane), f"producer-once {where}")
        lane.append(one)
        return one.stored

    async def close(self) -> None:
        """End; who still waits may find the message stored or not."""
        await self._tasks.aclose()

    # --- one partition --------------------------------------------------------------------------

    async def _drain(self, where: TopicPartition, lane: list[_Waiting]) -> None:
        try:
            while lane:
                some = _first(lane)
                await self._deliver(where, some)
                del lane[: len(some)]
        finally:
            # Nobody adds to it between the last look and this; what is left is so at the end.
            self._lanes.pop(where, None)
            _fail(lane, ClosedError("the producer was closed before the message was stored"))

    async def _deliver(self, where: TopicPartition, some: list[_Waiting]) -> None:
        try:
            places = await self._ask(where, some)
        except WaystationError as error:
            if len(some) == 1 or isinstance(error, RequestTimedOutError):
                _fail(some, error)
                return
            for one in some:
                await self._deliver(where, [one])
            return
        for one, place in zip(some, places, strict=True):
            _tell(where, one, place)

    async def _ask(self, where: TopicPartition, some: list[_Waiting]) -> list[OncePlace]:
        left_ms = int((some[0].deadline_s - asyncio.get_running_loop().time()) * 1_000)
        if left_ms <= 0:
            raise RequestTimedOutError(f"{where}: the message waited too long behind others")
        records = _batch([one.message for one in some])

        async def attempt() -> list[OncePlace] | WaystationError:
            leader = await self._router.leader_of(where)
            # A leader that hangs is given up soon enough for the next one to be asked in time.
            timeout_ms = min(left_ms, _ATTEMPT_MS, self._router.settings.request_timeout_ms)
            request = ProduceOnceRequest(
                topic=where.topic,
                partition=where.partition,
                timeout_ms=timeout_ms,
                records=records,
            )
            connection = await self._router.to_node(leader)
            silent_s = (timeout_ms + _SILENT_MS) / 1_000
            told = await connection.ask(request, ProduceOnceResponse, silent_s)
            if not told.error_code:
                return told.places
            error = error_of(told.error_code, str(where), told.error_message)
            if error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                return error  # there is no room for hours, perhaps
            raise error

        places = await self._router.retrying(attempt, left_ms)
        if isinstance(places, WaystationError):
            raise places
        return places


def _first(lane: list[_Waiting]) -> list[_Waiting]:
    """The first messages of a lane that go together; at least one."""
    count, size_bytes = 0, 0
    for one in lane[:_RECORDS]:
        size_bytes += _size_bytes(one.message)
        if count and size_bytes > _BYTES:
            break
        count += 1
    return lane[:count]


def _size_bytes(message: OnceMessage) -> int:
    headers = sum(len(name) + len(content or b"") for name, content in message.headers)
    return len(message.key or b"") + len(message.value or b"") + headers


def _batch(messages: list[OnceMessage]) -> bytes:
    builder = BatchBuilder(limit_bytes=1 << 31)
    for one in messages:
        headers = (*one.headers, (HEADER_NAME, one.once_key.encode()))
        builder.append(one.key, one.value, headers, timestamp=one.timestamp)
    return builder.build()


def _checked(message: OnceMessage) -> bytes:
    once_key = message.once_key.encode(errors="surrogatepass")
    check_key(once_key)
    if any(name == HEADER_NAME for name, _ in message.headers):
        raise InvalidRequestError(
            f"the header {HEADER_NAME} is given and the idempotency key as well: leave the header"
        )
    return once_key


def _tell(where: TopicPartition, one: _Waiting, place: OncePlace) -> None:
    if one.stored.done():
        return
    offset = Offset(place.offset)
    if place.fate == _CONFLICT:
        one.stored.set_exception(IdempotencyConflictError(where, offset, one.message.once_key))
        return
    kind = ReplayedMetadata if place.fate == _REPLAYED else RecordMetadata
    one.stored.set_result(kind(*where, offset, Millis(place.timestamp_ms)))


def _fail(waiting: list[_Waiting], error: WaystationError) -> None:
    for one in waiting:
        if not one.stored.done():
            one.stored.set_exception(error)
