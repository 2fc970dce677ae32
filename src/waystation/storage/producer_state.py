"""What a partition remembers of its idempotent producers, so that nothing is written twice.

1. A batch that was appended before is recognised among the last five of its producer.
2. A batch is let in only if it follows the producer's last one, or begins a newer epoch, or its
   producer is not known here.
3. A snapshot and the headers behind it give the same state as the whole log.

The file format of snapshots is in ``snapshots.py``.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from waystation.model.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.offsets import NO_OFFSET, NO_TIMESTAMP, Millis, Offset
from waystation.records.header import BatchHeader

REMEMBERED_BATCHES: Final = 5
"""As many requests as an idempotent producer may have in flight."""

_SEQUENCES: Final = 1 << 31


class KnownBatch(NamedTuple):
    """One batch of a producer."""

    first_sequence: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: Millis

    @property
    def base_offset(self) -> Offset:
        """Where the batch begins."""
        return Offset(self.last_offset - self.offset_delta)


class Producer:
    """One producer's epoch and its last batches, oldest first."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "heard_at", "producer_id", "txn_start")

    def __init__(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[KnownBatch] = []
        self.heard_at = NO_TIMESTAMP
        self.coordinator_epoch = -1
        self.txn_start = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        """The sequence of its newest record, or -1."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_timestamp(self) -> Millis:
        """The timestamp of its newest batch, or -1."""
        return self.batches[-1].timestamp if self.batches else NO_TIMESTAMP


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("_producers",)

    def __init__(self, producers: Iterable[Producer] = ()) -> None:
        self._producers = {one.producer_id: one for one in producers}

    def __len__(self) -> int:
        return len(self._producers)

    def active(self) -> list[Producer]:
        """Everyone who is remembered."""
        return list(self._producers.values())

    def check(self, header: BatchHeader) -> KnownBatch | None:
        """The batch this one repeats; ``None`` if it is new and may be appended.

        A producer that is not known may begin anywhere: it may have been forgotten.

        HOT: once per batch of an idempotent producer.
        """
        known = self._producers.get(header.producer_id)
        if known is None:
            return None
        first, epoch = header.base_sequence, header.producer_epoch
        if epoch == known.epoch:
            last = (first + header.last_offset_delta) % _SEQUENCES
            for batch in known.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return batch
            expected = (known.last_sequence + 1) % _SEQUENCES
        elif epoch < known.epoch:
            raise InvalidProducerEpochError(header.producer_id, known.epoch, epoch)
        else:
            expected = 0
        if first != expected:
            raise OutOfOrderSequenceError(header.producer_id, epoch, expected, first)
        return None

    def note(self, header: BatchHeader, base_offset: Offset, now: Millis) -> None:
        """A batch was appended at ``now``, or is found in the log.  HOT: as ``check``."""
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = Producer(header.producer_id, header.producer_epoch)
            self._producers[header.producer_id] = known
        delta = header.last_offset_delta
        known.heard_at = now
        batches = known.batches
        batches.append(
            KnownBatch(
                header.base_sequence,
                (header.base_sequence + delta) % _SEQUENCES,
                Offset(base_offset + delta),
                delta,
                header.max_timestamp,
            )
        )
        if len(batches) > REMEMBERED_BATCHES:
            del batches[0]

    def expire(self, now: Millis, quiet_ms: int) -> int:
        """Forget producers that were quiet for longer than ``quiet_ms``; how many.

        One that was read back from the log after a restart counts from now on.
        """
        quiet = []
        for producer in self._producers.values():
            if producer.heard_at == NO_TIMESTAMP:
                producer.heard_at = now
            elif now - producer.heard_at > quiet_ms and producer.txn_start < 0:
                quiet.append(producer.producer_id)
        for producer_id in quiet:
            del self._producers[producer_id]
        return len(quiet)
