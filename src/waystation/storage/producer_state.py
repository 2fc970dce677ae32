"""What a partition remembers of its idempotent producers, so that nothing is written twice.

1. A batch that was appended before is recognised among the last five of its producer.
2. A batch is let in only if it follows the producer's last one, or begins a newer epoch, or
   its producer is not known here.
3. A snapshot and the headers behind it give the same state as the whole log.

Snapshots are in Kafka's format, which holds one batch per producer.  Ours adds the four before
it after Kafka's last byte, where Kafka's tools do not look: a client with five requests in
flight may repeat any of them after our restart.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from waystation.model.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.records.header import BatchHeader

_REMEMBERED: Final = 5
_SEQUENCES: Final = 1 << 31

_VERSION: Final = 1
_HEAD = struct.Struct(">hIi")
_PRODUCER = struct.Struct(">qhiqiqiq")
_EARLIER = struct.Struct(">iiqq")
_CRC_FROM: Final = 6


class Appended(NamedTuple):
    """Where a batch went; ``duplicate`` if it went there before."""

    base_offset: Offset
    last_offset: Offset
    append_time: Millis
    duplicate: bool = False


class Remembered(NamedTuple):
    """One batch of a producer."""

    first_sequence: int
    last_sequence: int
    base_offset: Offset
    last_offset: Offset
    timestamp: int


class Producer:
    """One producer's epoch and its last batches, oldest first."""

    __slots__ = ("batches", "epoch", "producer_id")

    def __init__(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[Remembered] = []

    @property
    def last_sequence(self) -> int:
        """The sequence of its newest record."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_timestamp(self) -> int:
        """When it was last heard of."""
        return self.batches[-1].timestamp if self.batches else -1


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[ProducerId, Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def active(self) -> Iterator[Producer]:
        """Everyone who is remembered."""
        return iter(list(self._producers.values()))

    def check(self, header: BatchHeader) -> Appended | None:
        """Where the batch is if it is a repetition; ``None`` if it may be appended.

        HOT: once per batch of an idempotent producer.
        """
        known = self._producers.get(ProducerId(header.producer_id))
        if known is None:
            return None
        if header.producer_epoch < known.epoch:
            raise InvalidProducerEpochError(
                known.producer_id, known.epoch, ProducerEpoch(header.producer_epoch)
            )
        first = header.base_sequence
        if header.producer_epoch > known.epoch:
            expected = 0
        else:
            last = (first + header.last_offset_delta) % _SEQUENCES
            for batch in known.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return Appended(
                        batch.base_offset, batch.last_offset, Millis(batch.timestamp), True
                    )
            expected = (known.last_sequence + 1) % _SEQUENCES
        if first != expected:
            raise OutOfOrderSequenceError(
                known.producer_id, ProducerEpoch(header.producer_epoch), expected, first
            )
        return None

    def note(self, header: BatchHeader, base_offset: Offset) -> None:
        """A batch was appended, or is found in the log."""
        producer_id = ProducerId(header.producer_id)
        known = self._producers.get(producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = self._producers[producer_id] = Producer(
                producer_id, ProducerEpoch(header.producer_epoch)
            )
        first = header.base_sequence
        known.batches.append(
            Remembered(
                first,
                (first + header.last_offset_delta) % _SEQUENCES,
                base_offset,
                Offset(base_offset + header.last_offset_delta),
                header.max_timestamp,
            )
        )
        del known.batches[:-_REMEMBERED]

    def expire(self, before: Millis) -> int:
        """Forget producers not heard of since ``before``; how many."""
        quiet = [one for one in self._producers.values() if one.last_timestamp < before]
        for producer in quiet:
            del self._producers[producer.producer_id]
        return len(quiet)

    def snapshot(self) -> bytes:
        """The state as a ``.snapshot`` file holds it."""
        producers = [one for one in self._producers.values() if one.batches]
        kafka = b"".join(_kafka_entry(one) for one in producers)
        ours = b"".join(_earlier_batches(one) for one in producers)
        body = struct.pack(">i", len(producers)) + kafka + ours
        return struct.pack(">hI", _VERSION, crc32c(body)) + body

    @classmethod
    def from_snapshot(cls, data: bytes) -> "ProducerStates":
        """The state that a snapshot holds; ``ValueError`` if it is damaged."""
        if len(data) < _HEAD.size:
            raise ValueError(f"a snapshot of {len(data)} bytes")
        version, checksum, count = _HEAD.unpack_from(data)
        if version != _VERSION or checksum != crc32c(data[_CRC_FROM:]):
            raise ValueError("a snapshot of another version or with a wrong checksum")
        states = cls()
        at = _HEAD.size
        producers = []
        for _ in range(count):
            producers.append(_from_kafka_entry(data, at))
            at += _PRODUCER.size
        for producer in producers:
            if at < len(data):
                at = _take_earlier_batches(producer, data, at)
            states._producers[producer.producer_id] = producer
        return states


def _kafka_entry(producer: Producer) -> bytes:
    last = producer.batches[-1]
    return _PRODUCER.pack(
        producer.producer_id,
        producer.epoch,
        last.last_sequence,
        last.last_offset,
        last.last_offset - last.base_offset,
        last.timestamp,
        -1,
        -1,
    )


def _from_kafka_entry(data: bytes, at: int) -> Producer:
    number, epoch, sequence, offset, delta, timestamp, _, _ = _PRODUCER.unpack_from(data, at)
    producer = Producer(ProducerId(number), ProducerEpoch(epoch))
    first = (sequence - delta) % _SEQUENCES
    producer.batches = [
        Remembered(first, sequence, Offset(offset - delta), Offset(offset), timestamp)
    ]
    return producer


def _earlier_batches(producer: Producer) -> bytes:
    earlier = producer.batches[:-1]
    rows = b"".join(
        _EARLIER.pack(one.first_sequence, one.last_sequence, one.base_offset, one.timestamp)
        for one in earlier
    )
    return bytes([len(earlier)]) + rows


def _take_earlier_batches(producer: Producer, data: bytes, at: int) -> int:
    count, at = data[at], at + 1
    earlier = []
    for _ in range(count):
        first, last, base, timestamp = _EARLIER.unpack_from(data, at)
        delta = (last - first) % _SEQUENCES
        earlier.append(Remembered(first, last, Offset(base), Offset(base + delta), timestamp))
        at += _EARLIER.size
    producer.batches[:0] = earlier
    return at
