"""Where records wait until their batch leaves.

A record joins the open batch of its partition.  A batch is closed when the next record does
not fit, and is due once it lingered long enough or somebody flushes.  A due batch that cannot
leave yet stays open: under load batches fill up instead of multiplying.

Records for a topic whose partitions are not known yet are parked, in order, and take their
place once they are.  Whatever waits is charged to one budget, ``buffer_bytes``.

There is no I/O here: ``sender.py`` moves the batches.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import NamedTuple

from waystation.client.errors import BufferFullError, MessageRefusedError, NoSuchPartitionError
from waystation.client.metadata import TopicView
from waystation.client.outgoing import (
    Delivered,
    Outgoing,
    OutgoingBatch,
    OutgoingLane,
    OutgoingWhole,
    Submitted,
)
from waystation.client.partitioner import Partitioner, partition_of_key, partitioner_for
from waystation.client.settings import ProducerSettings
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicId, TopicPartition
from waystation.model.offsets import Millis
from waystation.records.batch import BatchBuilder
from waystation.records.compression import Codec
from waystation.records.header import HEADER_BYTES
from waystation.records.packed import PackedBatch
from waystation.runtime.clock import Clock

__all__ = ["Accumulator", "Headers", "NewRecord", "Route"]

Headers = Sequence[tuple[str, bytes | None]]
NewRecord = tuple[bytes | None, bytes | None, Headers, int | None, int | None]
"""Value, key, headers, partition and timestamp; the last two may be left to the producer."""

_RECORD_FIELDS_BYTES = 32
"""The most that a record's lengths, deltas and attributes take."""
_HEADER_FIELDS_BYTES = 10
_UTF8_BYTES = 4
_FUTURE_BYTES = 128
"""About what a record costs beside its bytes until it is acknowledged."""
_PLAIN_BYTES = _RECORD_FIELDS_BYTES + _FUTURE_BYTES


class _Parked(NamedTuple):
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: Millis
    charged_bytes: int
    delivered: Delivered


class Route:
    """A topic's lanes and how its keyless records are spread over them.

    ``settled`` is done once the lanes are known, or it is known that there are none.
    """

    __slots__ = ("id", "lanes", "parked", "settled", "spread", "targets", "topic")

    def __init__(self, topic: str, spread: Partitioner, settled: asyncio.Future[None]) -> None:
        self.topic, self.spread, self.settled = topic, spread, settled
        self.id: TopicId | None = None
        self.lanes: list[OutgoingLane] = []
        self.targets: Sequence[int] = ()
        self.parked: list[_Parked] = []

    def partition_for(self, key: bytes | None, wanted: int | None) -> int:
        """The partition asked for, or the key's, or the next in turn."""
        if wanted is None:
            if key is None:
                return self.spread.choose(self.targets)
            return partition_of_key(key, len(self.lanes))
        if not 0 <= wanted < len(self.lanes):
            raise NoSuchPartitionError(TopicPartition(self.topic, wanted), len(self.lanes))
        return wanted


class Accumulator:
    """Every batch that is not acknowledged yet.

    ``opened`` is called with each new batch, ``filled`` with a lane that has one to send,
    ``failed`` with the reason why records will not be delivered.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        clock: Clock,
        chance: Random,
        *,
        lane_limit: int,
        opened: Callable[[OutgoingBatch], None],
        filled: Callable[[OutgoingLane], None],
        failed: Callable[[WaystationError], None] | None = None,
    ) -> None:
        self.buffered_bytes = 0
        self.routes: dict[str, Route] = {}
        self.batches: dict[Outgoing, None] = {}
        self.failures = 0
        self.first_failure: WaystationError | None = None
        self._settings, self._clock, self._chance = settings, clock, chance
        self._lane_limit = lane_limit
        self._opened, self._filled, self._failed = opened, filled, failed
        self._codec = Codec[settings.compression.upper()]
        # Below this any record has room that is not refused for its size.
        self._plenty_bytes = settings.buffer_bytes - settings.max_request_bytes - _FUTURE_BYTES
        self._batches_made = 0
        self._room: asyncio.Future[None] | None = None

    # --- records in -------------------------------------------------------------------------

    def charge(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        """What the record takes of the buffer; raises if it is too large, or has no room now.

        HOT: once per record produced (benchmarks/client/producer.py).
        """
        size = _RECORD_FIELDS_BYTES
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        for name, content in headers:
            size += len(name) * _UTF8_BYTES + len(content or b"") + _HEADER_FIELDS_BYTES
        if size + HEADER_BYTES > self._settings.max_request_bytes:
            self._check_size(topic, key, value, headers, size)
        size += _FUTURE_BYTES
        if self.buffered_bytes + size > self._settings.buffer_bytes and self.buffered_bytes:
            raise BufferFullError(self._settings.buffer_bytes)
        return size

    def add(
        self,
        route: Route,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: Millis,
        charged_bytes: int,
        delivered: Delivered,
    ) -> None:
        """Take a record that was charged for; its future tells what became of it.

        HOT: once per record produced (benchmarks/client/producer.py).
        """
        if route.targets:
            lane = route.lanes[route.partition_for(key, partition)]
            batch = lane.open
            if batch is None or not batch.builder.append(key, value, headers, timestamp=timestamp):
                keyless = key is None and partition is None
                batch = self._next_batch(
                    route, lane, keyless, key, value, headers, timestamp, charged_bytes
                )
            batch.futures.append(delivered)
            batch.timestamps.append(timestamp)
            batch.charged_bytes += charged_bytes
        else:
            route.parked.append(
                _Parked(partition, key, value, headers, timestamp, charged_bytes, delivered)
            )
        self.buffered_bytes += charged_bytes

    def add_many(
        self, route: Route, records: Iterable[NewRecord], now: Millis, submitted: Submitted
    ) -> None:
        """Take records, in order, until the buffer has no room for the next.

        HOT: once per record of many; the common case without a call, 0.5 µs where one by one
        is 1.6 (benchmarks/gateway/posts.py).
        """
        lanes, limit_bytes = route.lanes, self._settings.max_request_bytes - HEADER_BYTES
        only = lanes[0] if len(lanes) == 1 else None
        where, joined = submitted.where, None
        for value, key, headers, partition, timestamp in records:
            when = now if timestamp is None else Millis(timestamp)
            size = _PLAIN_BYTES + len(value or b"") + len(key or b"")
            try:
                if headers or size > limit_bytes or self.buffered_bytes > self._plenty_bytes:
                    size = self.charge(route.topic, key, value, headers)
                lane = only
                if lane is None or partition is not None:
                    lane = lanes[route.partition_for(key, partition)]
                batch = lane.open
                if batch is None or not batch.builder.append(key, value, headers, timestamp=when):
                    keyless = key is None and partition is None
                    batch = self._next_batch(route, lane, keyless, key, value, headers, when, size)
            except BufferFullError:
                break
            except WaystationError as error:
                where.append(error)
                continue
            where.append((batch, len(batch.timestamps)))
            batch.futures.append(None)
            batch.timestamps.append(when)
            batch.charged_bytes += size
            self.buffered_bytes += size
            if batch is not joined:
                submitted.joined(batch)
                joined = batch
        submitted.batch_settled()

    def add_whole(
        self, route: Route, partition: int, packed: PackedBatch, delivered: Delivered
    ) -> None:
        """Take a batch that was made elsewhere, behind what its partition has so far.

        Raises if it is too large, or has no room now, or there is no such partition.
        """
        size_bytes, settings = packed.size_bytes, self._settings
        if not 0 <= partition < len(route.lanes):
            raise NoSuchPartitionError(TopicPartition(route.topic, partition), len(route.lanes))
        if size_bytes > settings.max_request_bytes:
            raise _too_large(f"a batch for topic {route.topic}", size_bytes, settings)
        if self.buffered_bytes + size_bytes > settings.buffer_bytes and self.buffered_bytes:
            raise BufferFullError(settings.buffer_bytes)
        packed.codec, packed.level = self._codec, settings.compression_level
        packed.is_transactional = settings.transactional_id is not None
        lane = route.lanes[partition]
        lane.close_batch()
        batch = OutgoingWhole(lane, self._next_order(), packed, self._deadline(), delivered)
        batch.charged_bytes = size_bytes
        batch.due = True
        self.buffered_bytes += size_bytes
        self.batches[batch] = None
        lane.queued.append(batch)
        self._filled(lane)

    def route(self, topic: str) -> Route:
        """The route of ``topic``; a new one parks its records until ``learn`` is told of it."""
        route = self.routes.get(topic)
        if route is None:
            spread = partitioner_for(self._settings.partitioner, self._chance)
            route = Route(topic, spread, asyncio.get_running_loop().create_future())
            self.routes[topic] = route
        return route

    def learn(self, view: TopicView) -> list[OutgoingLane]:
        """Give a topic's route the lanes it lacks and its parked records their place.

        Only a topic that was made anew has fewer partitions than before: what its other lanes hold
        can never be sent, and they are handed back.
        """
        route = self.routes[view.name]
        gone: list[OutgoingLane] = []
        if route.id != view.id:
            gone, route.id = route.lanes[len(view.partitions) :], view.id
            del route.lanes[len(view.partitions) :]
        for partition in range(len(route.lanes), len(view.partitions)):
            where = TopicPartition(view.name, partition)
            route.lanes.append(OutgoingLane(where, self._lane_limit))
        # Where no partition has a leader, records go to their lanes all the same and wait.
        route.targets = view.led or tuple(range(len(view.partitions)))
        parked, route.parked = route.parked, []
        for record in parked:
            self.buffered_bytes -= record.charged_bytes
            try:
                self.add(route, *record)
            except WaystationError as error:
                self._refuse(record, error)
        _settle(route.settled)
        return gone

    def refuse(self, topic: str, error: WaystationError) -> None:
        """Fail the records parked for ``topic``, which cannot be written."""
        route = self.routes.pop(topic)
        for record in route.parked:
            self._release(record.charged_bytes)
            self._refuse(record, error)
        _settle(route.settled)

    def refuse_parked(self, error: WaystationError) -> None:
        """Fail the records that wait for their topic's partitions; the topics stay wanted."""
        for route in self.routes.values():
            parked, route.parked = route.parked, []
            for record in parked:
                self._release(record.charged_bytes)
                self._refuse(record, error)

    def abandon(self, error: WaystationError) -> None:
        """Fail whatever is left, because nobody will send it."""
        for topic in list(self.routes):
            self.refuse(topic, error)
        for batch in list(self.batches):
            self.gave_up(batch, error)

    # --- batches out ------------------------------------------------------------------------

    def close_if_due(self, lane: OutgoingLane) -> None:
        """Close the lane's open batch if it is due and could leave now."""
        batch = lane.open
        if batch is not None and batch.due and not lane.queued and lane.has_room():
            lane.close_batch()
            self.routes[lane.partition.topic].spread.batch_filled()

    def acknowledged(self, batch: Outgoing, base_offset: int, append_time: int) -> None:
        """The broker has ``batch``."""
        self._forget(batch)
        batch.succeed(base_offset, append_time)

    def gave_up(self, batch: Outgoing, error: WaystationError) -> None:
        """``batch`` will not be delivered."""
        self._forget(batch)
        self._count_failures(batch.count, error)
        batch.fail(error)

    def halved(self, batch: OutgoingBatch) -> list[OutgoingBatch]:
        """Two batches in the place of one that was too large."""
        limit_bytes = batch.builder.limit_bytes
        halves = batch.halves((self._builder(limit_bytes), self._builder(limit_bytes)))
        del self.batches[batch]
        self.batches.update(dict.fromkeys(halves))
        return halves

    async def room(self) -> None:
        """Return once at most half of the buffer is taken.

        Waking at half spares a waiter, and the sender, a turn of the loop for every record.
        """
        while self.buffered_bytes > self._settings.buffer_bytes // 2:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
                self._hurry()
            await asyncio.shield(self._room)

    def take_failures(self) -> tuple[int, WaystationError | None]:
        """How many records failed since this was last asked, and the first reason."""
        failures, first = self.failures, self.first_failure
        self.failures, self.first_failure = 0, None
        return failures, first

    # --- behind the scenes ------------------------------------------------------------------

    def _next_batch(
        self,
        route: Route,
        lane: OutgoingLane,
        keyless: bool,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: Millis,
        charged_bytes: int,
    ) -> OutgoingBatch:
        """A batch with the record, which the lane's open one, if there is any, had no room for."""
        if lane.open is not None and keyless:
            lane = self._move_on(route, lane)
        return self._batch_with(lane, key, value, headers, timestamp, charged_bytes)

    def _hurry(self) -> None:
        """Let no batch linger for records that have no room."""
        for batch in self.batches:
            if not batch.due:
                batch.due = True
                self._filled(batch.lane)

    def _move_on(self, route: Route, lane: OutgoingLane) -> OutgoingLane:
        """The lane for a keyless record, now that this one's batch is full."""
        self._close(lane)
        route.spread.batch_filled()
        return route.lanes[route.partition_for(None, None)]

    def _batch_with(
        self,
        lane: OutgoingLane,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: Millis,
        charged_bytes: int,
    ) -> OutgoingBatch:
        """The lane's open batch if there is room in it, else a new one, with the record in it."""
        batch = lane.open
        if batch is not None:
            if batch.builder.append(key, value, headers, timestamp=timestamp):
                return batch
            self._close(lane)
        batch = self._new_batch(lane, max(self._settings.batch_bytes, charged_bytes + HEADER_BYTES))
        builder = batch.builder
        fits = builder.append(key, value, headers, timestamp=timestamp)
        assert fits, f"{charged_bytes} bytes in a batch of {builder.limit_bytes}"
        # A batch that was made larger for this record takes no other.
        builder.limit_bytes = max(self._settings.batch_bytes, builder.size_bytes)
        lane.open = batch
        self.batches[batch] = None
        self._opened(batch)
        return batch

    def _new_batch(self, lane: OutgoingLane, limit_bytes: int) -> OutgoingBatch:
        builder = self._builder(limit_bytes)
        return OutgoingBatch(lane, self._next_order(), builder, self._deadline())

    def _next_order(self) -> tuple[int]:
        self._batches_made += 1
        return (self._batches_made,)

    def _deadline(self) -> float:
        return self._clock.monotonic() + self._settings.delivery_timeout_ms / 1_000

    def _builder(self, limit_bytes: int) -> BatchBuilder:
        settings = self._settings
        return BatchBuilder(
            self._codec,
            is_transactional=settings.transactional_id is not None,
            limit_bytes=limit_bytes,
            level=settings.compression_level,
        )

    def _close(self, lane: OutgoingLane) -> None:
        lane.close_batch()
        self._filled(lane)

    def _forget(self, batch: Outgoing) -> None:
        del self.batches[batch]
        self._release(batch.charged_bytes)

    def _release(self, nbytes: int) -> None:
        self.buffered_bytes -= nbytes
        if self._room is not None and self.buffered_bytes <= self._settings.buffer_bytes // 2:
            self._room.set_result(None)
            self._room = None

    def _refuse(self, record: _Parked, error: WaystationError) -> None:
        self._count_failures(1, error)
        if not record.delivered.done():
            record.delivered.set_exception(error)
            record.delivered.exception()  # counts as seen: flush reports it

    def _count_failures(self, count: int, error: WaystationError) -> None:
        self.failures += count
        self.first_failure = self.first_failure or error
        if self._failed is not None:
            self._failed(error)

    def _check_size(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, size: int
    ) -> None:
        """Encode the record that seems too large, and refuse it if it is."""
        probe = BatchBuilder(limit_bytes=size + HEADER_BYTES)
        probe.append(key, value, headers, timestamp=Millis(0))
        if probe.size_bytes > self._settings.max_request_bytes:
            raise _too_large(f"the message for topic {topic}", probe.size_bytes, self._settings)


def _too_large(what: str, size_bytes: int, settings: ProducerSettings) -> MessageRefusedError:
    limit_bytes = settings.max_request_bytes
    return MessageRefusedError(
        f"{what} takes {size_bytes} bytes, the limit is {limit_bytes}: send less, or raise "
        "max_request_bytes of the producer and max.message.bytes of the topic",
        size_bytes,
        limit_bytes,
    )


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
