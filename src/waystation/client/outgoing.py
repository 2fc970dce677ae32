"""Records on their way out: the batch that holds them, and what their senders are told.

Most batches gather records one by one (``OutgoingBatch``); one that was made elsewhere, from
columns, is sent as it is (``OutgoingWhole``).  The sender treats both alike.

Who hands over one record has a future for it.  Who hands over many at once has one for all of
them (``Submitted``), and asks the batches afterwards where each went.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

from waystation.client.delivery import Identity, Lane
from waystation.model.errors import WaystationError
from waystation.model.ids import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_TOPIC_ID,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder, records_of
from waystation.records.packed import PackedBatch
from waystation.records.record import Buffer

__all__ = [
    "Delivered",
    "Outgoing",
    "OutgoingBatch",
    "OutgoingLane",
    "OutgoingWhole",
    "RecordMetadata",
    "ReplayedMetadata",
    "Submitted",
]


class RecordMetadata(NamedTuple):
    """Where a record went; with acks=0 nobody says, and the offset is -1."""

    topic: str
    partition: int
    offset: Offset
    timestamp: Millis
    topic_id: TopicId = NO_TOPIC_ID
    """Of the topic that has it: the name may be another topic's by now.  Zeros if not known."""

    @property
    def replayed(self) -> bool:
        """Whether it was stored before, under the same idempotency key."""
        return False


class ReplayedMetadata(RecordMetadata):
    """Where a record was stored when it was sent first."""

    __slots__ = ()

    @property
    def replayed(self) -> bool:
        """It was stored before."""
        return True


Delivered = asyncio.Future[RecordMetadata]


class Builder(Protocol):
    """What makes the bytes of a batch once its number is known."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int

    @property
    def size_bytes(self) -> int:
        """What the batch takes uncompressed."""
        ...

    def build(self) -> Buffer:
        """The batch as it goes on the wire."""
        ...


class Outgoing(ABC):
    """A batch for one partition, as the sender and its lane see it.

    ``due`` says that it need not wait for more records; ``charged_bytes`` is what it takes of
    the producer's buffer.
    """

    __slots__ = (
        "_encoded",
        "attempts",
        "charged_bytes",
        "deadline",
        "done",
        "due",
        "identity",
        "lane",
        "led",
        "order",
        "retry_at",
        "sequence",
        "topic_id",
        "waiting",
    )

    def __init__(self, lane: "OutgoingLane", order: tuple[int, ...], deadline: float) -> None:
        self.lane, self.order, self.deadline = lane, order, deadline
        self.charged_bytes = 0
        self.attempts = 0
        self.due = False
        self.done: asyncio.Future[None] | None = None
        self.identity: Identity | None = None
        self.sequence = -1
        self.retry_at = 0.0
        self.waiting = False
        self.led = False
        self.topic_id = NO_TOPIC_ID
        """Which topic it was sent to last."""
        self._encoded: Buffer | None = None

    @property
    @abstractmethod
    def count(self) -> int:
        """How many records it has."""

    @property
    def size_bytes(self) -> int:
        """What it takes uncompressed."""
        return self._bytes.size_bytes

    def encode(self) -> Buffer:
        """The bytes under the number it was given; made anew only if that changed."""
        producer, epoch = self.identity or (NO_PRODUCER, NO_PRODUCER_EPOCH)
        builder = self._bytes
        numbered = (producer, epoch, self.sequence)
        if self._encoded is None or numbered != (
            builder.producer_id,
            builder.producer_epoch,
            builder.base_sequence,
        ):
            builder.producer_id, builder.producer_epoch, builder.base_sequence = numbered
            self._encoded = builder.build()
        return self._encoded

    @abstractmethod
    def succeed(self, base_offset: int, append_time: int) -> None:
        """Tell who sent it where it is; -1 for what the broker did not say."""

    @abstractmethod
    def fail(self, error: WaystationError) -> None:
        """Tell who sent it why not.  The error counts as seen: ``flush`` reports it too."""

    @property
    @abstractmethod
    def _bytes(self) -> Builder: ...

    def _finish(self) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(None)


class OutgoingBatch(Outgoing):
    """Records that came one by one; a future for each that was submitted by itself.

    Of those that came with others ``submitted`` says with which, and ``place`` where they are.
    """

    __slots__ = (
        "_append_time",
        "_base_offset",
        "_error",
        "_parts",
        "builder",
        "futures",
        "submitted",
        "timestamps",
    )

    def __init__(
        self,
        lane: "OutgoingLane",
        order: tuple[int, ...],
        builder: BatchBuilder,
        deadline: float,
    ) -> None:
        super().__init__(lane, order, deadline)
        self.builder = builder
        self.futures: list[Delivered | None] = []
        self.timestamps: list[Millis] = []
        self.submitted: list[Submitted] = []
        self._base_offset = self._append_time = -1
        self._error: WaystationError | None = None
        self._parts: list[OutgoingBatch] = []

    @property
    def count(self) -> int:
        """How many records it has."""
        return len(self.timestamps)

    @property
    def _bytes(self) -> Builder:
        return self.builder

    def place(self, index: int) -> "RecordMetadata | WaystationError":
        """Where one of its records is, or why it is nowhere, once that is known."""
        if self._parts:
            first, second = self._parts
            middle = first.count
            return first.place(index) if index < middle else second.place(index - middle)
        if self._error is not None:
            return self._error
        base_offset, append_time = self._base_offset, self._append_time
        topic, partition = self.lane.partition
        offset = base_offset + index if base_offset >= 0 else base_offset
        timestamp = append_time if append_time >= 0 else self.timestamps[index]
        # As _make does it, at half of its price.
        told = (topic, partition, offset, timestamp, self.topic_id)
        return tuple.__new__(RecordMetadata, told)

    def halves(self, builders: tuple[BatchBuilder, BatchBuilder]) -> list["OutgoingBatch"]:
        """The same records in two batches that stand where this one stood."""
        records = records_of(self.builder.build())
        middle = len(records) // 2
        parts = []
        for half, (start, stop) in enumerate(((0, middle), (middle, len(records)))):
            part = OutgoingBatch(self.lane, (*self.order, half), builders[half], self.deadline)
            for record in records[start:stop]:
                part.builder.append(
                    record.key, record.value, record.headers, timestamp=record.timestamp
                )
            part.futures, part.timestamps = self.futures[start:stop], self.timestamps[start:stop]
            parts.append(part)
        parts[0].charged_bytes = self.charged_bytes // 2
        parts[1].charged_bytes = self.charged_bytes - parts[0].charged_bytes
        parts[-1].done = self.done
        self._parts = parts
        for one in self.submitted:
            one.cut()
            for part in parts:
                part.submitted.append(one)
        self.submitted = []
        return parts

    def succeed(self, base_offset: int, append_time: int) -> None:
        """Tell each sender where its record is; -1 for what the broker did not say.

        HOT: once per record produced (benchmarks/client/producer.py).
        """
        self._base_offset, self._append_time = base_offset, append_time
        topic, partition = self.lane.partition
        topic_id = self.topic_id
        step = 1 if base_offset >= 0 else 0
        offset = base_offset
        for future, timestamp in zip(self.futures, self.timestamps, strict=True):
            if future is not None and not future.done():
                moment = append_time if append_time >= 0 else timestamp
                told = (topic, partition, offset, moment, topic_id)
                future.set_result(RecordMetadata._make(told))
            offset += step
        self._finish()

    def fail(self, error: WaystationError) -> None:
        """Tell each sender why not."""
        self._error = error
        for future in self.futures:
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()
        self._finish()

    def _finish(self) -> None:
        # They know this batch too: a circle would keep its bytes until the collector comes.
        submitted, self.submitted = self.submitted, []
        for one in submitted:
            one.batch_settled()
        super()._finish()


class Submitted:
    """Records that were handed over together: one future for all of them.

    ``taken`` counts them; what had no room in the buffer is not among them.
    """

    __slots__ = ("_batches", "_settled", "where")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.where: list[tuple[OutgoingBatch, int] | WaystationError] = []
        """Of each record its batch and its place in there, or why it cannot be sent."""
        self._settled: asyncio.Future[None] = loop.create_future()
        self._batches = 1  # the one who still adds to it

    @property
    def taken(self) -> int:
        """How many records were handed over."""
        return len(self.where)

    async def outcomes(self) -> list[RecordMetadata | WaystationError]:
        """Where each went, in order, or why it is nowhere; returns once this is known of all.

        HOT: once per record of many (benchmarks/gateway/posts.py).
        """
        await self._settled
        return [one[0].place(one[1]) if isinstance(one, tuple) else one for one in self.where]

    # --- what the producer calls ------------------------------------------------------------

    def joined(self, batch: OutgoingBatch) -> None:
        """Records have joined ``batch``, which tells when its fate is known."""
        if not batch.submitted or batch.submitted[-1] is not self:
            batch.submitted.append(self)
            self._batches += 1

    def cut(self) -> None:
        """A batch has become two."""
        self._batches += 1

    def batch_settled(self) -> None:
        """The fate of one batch is known; also told when all records were handed over."""
        self._batches -= 1
        if not self._batches and not self._settled.done():
            self._settled.set_result(None)


class OutgoingWhole(Outgoing):
    """A batch that was made elsewhere, and one future, for where its first record went."""

    __slots__ = ("_delivered", "_packed")

    def __init__(
        self,
        lane: "OutgoingLane",
        order: tuple[int, ...],
        packed: PackedBatch,
        deadline: float,
        delivered: Delivered,
    ) -> None:
        super().__init__(lane, order, deadline)
        self._packed, self._delivered = packed, delivered

    @property
    def count(self) -> int:
        """How many records it has."""
        return self._packed.records_count

    @property
    def _bytes(self) -> Builder:
        return self._packed

    def succeed(self, base_offset: int, append_time: int) -> None:
        """Tell where the first record is."""
        if not self._delivered.done():
            topic, partition = self.lane.partition
            timestamp = append_time if append_time >= 0 else self._packed.base_timestamp
            told = (topic, partition, base_offset, timestamp, self.topic_id)
            self._delivered.set_result(RecordMetadata._make(told))
        self._finish()

    def fail(self, error: WaystationError) -> None:
        """Tell why not."""
        if not self._delivered.done():
            self._delivered.set_exception(error)
            self._delivered.exception()
        self._finish()


class OutgoingLane(Lane[Outgoing]):
    """A lane whose last batch may still be open for more records."""

    __slots__ = ("open",)

    def __init__(self, partition: TopicPartition, limit: int) -> None:
        super().__init__(partition, limit)
        self.open: OutgoingBatch | None = None

    def close_batch(self) -> None:
        """Let the open batch take no more records."""
        if self.open is not None:
            self.queued.append(self.open)
            self.open = None
