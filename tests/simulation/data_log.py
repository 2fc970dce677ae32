"""A partition as brokers hold it, small enough to be read: batches, markers, producers, readers.

It keeps Kafka's rules for producers' epochs and sequences, and loses in a crash some of what was
not synced.  What the real log does is proven elsewhere (``tests/storage_faults``); here it is what
the coordinator, the admission of producers and the clients are tried on.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from waystation.model.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
    WaystationError,
)
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.records.control import Marker

NO_SEQUENCE = -1
_REMEMBERED = 5


class Batch(NamedTuple):
    """Rows of one producer's transaction; without a sequence they are not deduplicated."""

    offset: int
    producer_id: int
    epoch: int
    sequence: int
    rows: tuple[Any, ...]


class Written(NamedTuple):
    """A marker in the log."""

    offset: int
    marker: Marker


class _Producer:
    """What a partition knows of a producer."""

    def __init__(self) -> None:
        self.epoch = self.coordinator_epoch = -1
        self.next_sequence = 0
        self.recent: dict[int, int] = {}
        self.open: list[int] = []
        """The offsets of its open transaction's batches."""


class DataLog:
    """One partition; ``synced`` is the end of what a crash leaves."""

    def __init__(self) -> None:
        self.entries: list[Batch | Written] = []
        self.end = self.synced = 0
        self._producers: dict[int, _Producer] = {}
        self._ended: list[tuple[int, int]] = []
        """Where transactions began, and the end of their markers that may not be synced yet."""
        self._bases: list[int] = []
        self._aborted: set[int] = set()
        """Batches that do not count, by their offsets."""
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    # --- writing ----------------------------------------------------------------------------

    def append(
        self, producer_id: int, epoch: int, sequence: int, rows: Sequence[Any], *, may_begin: bool
    ) -> int:
        """The offset of the first row; raises what Kafka would answer."""
        producer = self._producers.get(producer_id) or _Producer()
        if epoch < producer.epoch:
            raise fenced(producer_id, producer.epoch, epoch)
        if epoch == producer.epoch and sequence in producer.recent:
            return producer.recent[sequence]
        expected = producer.next_sequence if epoch == producer.epoch else 0
        if sequence not in (NO_SEQUENCE, expected):
            raise OutOfOrderSequenceError(*_who(producer_id, epoch), expected, sequence)
        if not producer.open and not may_begin:
            raise InvalidTxnStateError("no transaction is open here")
        batch = Batch(self.end, producer_id, epoch, sequence, tuple(rows))
        self._take(batch)
        return batch.offset

    def append_marker(self, marker: Marker) -> int:
        """End a transaction; where the log ends now."""
        if (refusal := self.refusal_of(marker)) is not None:
            raise refusal
        self._take(Written(self.end, marker))
        return self.end

    def refusal_of(self, marker: Marker) -> WaystationError | None:
        """Why the marker may not be written: a newer producer, or coordinator, was heard of."""
        known = self._producers.get(marker.producer_id)
        if known is None:
            return None
        if marker.producer_epoch < known.epoch:
            return fenced(marker.producer_id, known.epoch, marker.producer_epoch)
        if marker.coordinator_epoch < known.coordinator_epoch:
            return TransactionCoordinatorFencedError(f"{marker} is of an earlier coordinator")
        return None

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of exactly that producer and epoch is open."""
        known = self._producers.get(producer_id)
        return known is not None and bool(known.open) and known.epoch == epoch

    def epoch_of(self, producer_id: int) -> int:
        """The newest epoch that was heard of; -1 if none was."""
        known = self._producers.get(producer_id)
        return -1 if known is None else known.epoch

    def sync(self, end: int) -> None:
        """Everything before ``end`` is safe from now on."""
        self.synced = max(self.synced, min(end, self.end))
        ready = [told for upto, told in self._waiting if upto <= self.synced]
        self._waiting = [one for one in self._waiting if one[0] > self.synced]
        for told in ready:
            told()

    def when_synced(self, end: int, told: Callable[[], None]) -> None:
        """Call ``told`` once everything before ``end`` is safe."""
        if self.synced >= end:
            told()
        else:
            self._waiting.append((end, told))

    def crash(self, chance: Random) -> None:
        """Keep what was synced, and by luck some more."""
        safe = sum(1 for entry in self.entries if entry.offset < self.synced)
        kept = self.entries[: chance.randint(safe, len(self.entries))]
        self.__init__()  # type: ignore[misc]  # the memory is gone, the disk is read again
        for entry in kept:
            self._take(entry)
        self.synced = self.end

    # --- reading ----------------------------------------------------------------------------

    @property
    def last_stable(self) -> int:
        """The end of what is decided and safe."""
        begun = [one.open[0] for one in self._producers.values() if one.open]
        undone = [first for first, end in self._ended if end > self.synced]
        return min([self.synced, *begun, *undone])

    def visible(self, start: int) -> tuple[list[tuple[int, Any]], int]:
        """Committed rows from ``start`` on with their offsets, and where to go on."""
        end = self.last_stable
        rows = []
        first = max(bisect_right(self._bases, start) - 1, 0)
        for entry in self.entries[first : bisect_left(self._bases, end)]:
            if isinstance(entry, Batch) and entry.offset not in self._aborted:
                rows += [(entry.offset + n, row) for n, row in enumerate(entry.rows)]
        return [row for row in rows if row[0] >= start], max(start, end)

    @property
    def is_undecided(self) -> bool:
        """Whether a transaction is open, or ended by what may be lost."""
        return self.last_stable < self.end

    # --- what follows from an entry -----------------------------------------------------------

    def _take(self, entry: Batch | Written) -> None:
        self.entries.append(entry)
        self._bases.append(entry.offset)
        if isinstance(entry, Batch):
            self.end = entry.offset + len(entry.rows)
            self._take_batch(entry)
        else:
            self.end = entry.offset + 1
            self._take_marker(entry)

    def _take_batch(self, batch: Batch) -> None:
        producer = self._producers.setdefault(batch.producer_id, _Producer())
        if batch.epoch != producer.epoch:
            producer.epoch, producer.next_sequence, producer.recent = batch.epoch, 0, {}
        if batch.sequence != NO_SEQUENCE:
            producer.next_sequence = batch.sequence + len(batch.rows)
            producer.recent[batch.sequence] = batch.offset
            for old in list(producer.recent)[:-_REMEMBERED]:
                del producer.recent[old]
        producer.open.append(batch.offset)

    def _take_marker(self, written: Written) -> None:
        marker = written.marker
        producer = self._producers.setdefault(marker.producer_id, _Producer())
        if marker.producer_epoch != producer.epoch:
            producer.epoch, producer.next_sequence, producer.recent = marker.producer_epoch, 0, {}
        producer.coordinator_epoch = marker.coordinator_epoch
        if producer.open:
            self._ended = [one for one in self._ended if one[1] > self.synced]
            self._ended.append((producer.open[0], self.end))
            if not marker.committed:
                self._aborted.update(producer.open)
        producer.open = []


def fenced(producer_id: int, known: int, found: int) -> InvalidProducerEpochError:
    """What is told to a producer that a newer one has taken over from."""
    return InvalidProducerEpochError(*_who(producer_id, known), ProducerEpoch(found))


def _who(producer_id: int, epoch: int) -> tuple[ProducerId, ProducerEpoch]:
    return ProducerId(producer_id), ProducerEpoch(epoch)
