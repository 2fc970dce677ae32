"""What a partition remembers of its producers, so that nothing is written twice or too late.

1. A batch that was appended before is recognised among the last five of its producer.
2. A batch is let in only if it follows the producer's last one, or begins a newer epoch, or its
   producer is not known here.
3. A producer has at most one open transaction here: its first transactional batch opens it, a
   marker ends it, and nothing outside the transaction is let in between.
4. A marker is let in only from a producer epoch and a coordinator epoch that are not outdated.
   One whose epoch was raised to end its transaction never ends the next, which has that epoch.
5. A snapshot and the batches behind it give the same state as the whole log.

The file format of snapshots is in ``snapshots.py``, what open transactions mean for readers in
``unstable.py``.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from waystation.model.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.offsets import NO_OFFSET, NO_TIMESTAMP, Millis, Offset
from waystation.records.control import Marker
from waystation.records.header import TRANSACTIONAL, BatchHeader
from waystation.storage.unstable import EndedTransaction, Unstable

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


class OpenTransaction(NamedTuple):
    """A transaction that has records here and no marker yet."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    """Which life of the coordinator ended the producer's transaction before; -1 if none did."""
    first_offset: Offset
    last_timestamp: Millis
    """The timestamp of the producer's newest batch."""
    began_at: Millis
    """By this node's clock.  After a restart it counts from the first look at the log; before
    that it is what the newest batch says."""
    last_offset: Offset = NO_OFFSET
    """Of its newest batch with a sequence, in this epoch; -1 if none is remembered."""


class Producer:
    """One producer's epoch, its last batches, oldest first, and its open transaction."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "heard_at",
        "last_timestamp",
        "producer_id",
        "txn_began_at",
        "txn_start",
    )

    def __init__(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[KnownBatch] = []
        self.heard_at = NO_TIMESTAMP
        self.last_timestamp = NO_TIMESTAMP
        """Of its newest batch or marker."""
        self.coordinator_epoch = -1
        """Which life of its coordinator wrote its last marker."""
        self.txn_start = NO_OFFSET
        """Where its open transaction begins."""
        self.txn_began_at = NO_TIMESTAMP

    @property
    def last_sequence(self) -> int:
        """The sequence of its newest record in this epoch, or -1."""
        return self.batches[-1].last_sequence if self.batches else -1

    def begin_epoch(self, epoch: ProducerEpoch) -> None:
        """Sequences begin anew; a transaction that is open stays so, until a marker ends it."""
        self.epoch = epoch
        self.batches = []


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("_producers", "unstable")

    def __init__(self, producers: Iterable[Producer] = ()) -> None:
        self._producers = {one.producer_id: one for one in producers}
        self.unstable = Unstable(
            (one.txn_start, one.producer_id) for one in self.active() if one.txn_start >= 0
        )

    def __len__(self) -> int:
        return len(self._producers)

    def active(self) -> list[Producer]:
        """Everyone who is remembered."""
        return list(self._producers.values())

    def in_transaction(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        """Whether exactly this producer in this epoch has a transaction open."""
        known = self._producers.get(producer_id)
        return known is not None and known.txn_start >= 0 and known.epoch == epoch

    def open_transactions(self) -> list[OpenTransaction]:
        """Those without a marker, in the order in which they began."""
        return [
            OpenTransaction(
                one.producer_id,
                one.epoch,
                one.coordinator_epoch,
                one.txn_start,
                one.last_timestamp,
                one.txn_began_at if one.txn_began_at >= 0 else one.last_timestamp,
                one.batches[-1].last_offset if one.batches else NO_OFFSET,
            )
            for one in (self._producers[producer_id] for producer_id in self.unstable.open)
        ]

    # --- batches ------------------------------------------------------------------------

    def check(self, header: BatchHeader, *, may_begin: bool = True) -> KnownBatch | None:
        """The batch this one repeats; ``None`` if it is new and may be appended.

        A producer that is not known may begin anywhere: it may have been forgotten.  What a
        coordinator writes in a transaction has no sequence, and is never repeated.

        HOT: once per batch of an idempotent producer.
        """
        known = self._producers.get(header.producer_id)
        if known is None:
            if not may_begin and header.attributes & TRANSACTIONAL:
                raise _not_begun(header)
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
        if first not in (expected, -1):
            raise OutOfOrderSequenceError(header.producer_id, epoch, expected, first)
        if header.attributes & TRANSACTIONAL:
            if not may_begin and (known.txn_start < 0 or epoch != known.epoch):
                raise _not_begun(header)
        elif known.txn_start >= 0:
            raise InvalidTxnStateError(
                f"producer {header.producer_id} has a transaction open since offset "
                f"{known.txn_start}; a batch outside of it must wait until it ends"
            )
        return None

    def note(self, header: BatchHeader, base_offset: Offset, now: Millis) -> None:
        """A batch was appended at ``now``, or is found in the log.  HOT: as ``check``."""
        known = self._producers.get(header.producer_id)
        if known is None:
            known = self._add(header.producer_id, header.producer_epoch)
        elif known.epoch != header.producer_epoch:
            known.begin_epoch(header.producer_epoch)
        known.heard_at = now
        known.last_timestamp = header.max_timestamp
        if header.base_sequence >= 0:
            delta, batches = header.last_offset_delta, known.batches
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
        if header.attributes & TRANSACTIONAL and known.txn_start < 0:
            known.txn_start, known.txn_began_at = base_offset, now
            self.unstable.begin(known.producer_id, base_offset)

    # --- markers ------------------------------------------------------------------------

    def check_epoch(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        """Raise if a newer one of the producer was heard of here."""
        known = self._producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            raise InvalidProducerEpochError(producer_id, known.epoch, epoch)

    def check_marker(self, marker: Marker) -> None:
        """Raise if the marker comes too late: from an older producer, or an older coordinator.

        A repeated one is let in where nothing is open: whoever asks again may have missed the
        answer, and must not be told that it failed.
        """
        self.check_epoch(marker.producer_id, marker.producer_epoch)
        known = self._producers.get(marker.producer_id)
        if known is None:
            return
        if marker.bumped and known.txn_start >= 0 and marker.producer_epoch == known.epoch:
            raise InvalidProducerEpochError(marker.producer_id, known.epoch, marker.producer_epoch)
        if marker.coordinator_epoch < known.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"a coordinator of epoch {known.coordinator_epoch} spoke for producer "
                f"{marker.producer_id} already; one of epoch {marker.coordinator_epoch} is outdated"
            )

    def end(
        self, marker: Marker, offset: Offset, timestamp: Millis, now: Millis
    ) -> EndedTransaction | None:
        """A marker lies at ``offset``; ``None`` if it ended nothing.

        Its epochs count all the same: what comes from older ones is refused from now on.
        """
        known = self._producers.get(marker.producer_id)
        if known is None:
            known = self._add(marker.producer_id, marker.producer_epoch)
        elif known.epoch != marker.producer_epoch:
            known.begin_epoch(marker.producer_epoch)
        known.coordinator_epoch = marker.coordinator_epoch
        known.heard_at, known.last_timestamp = now, timestamp
        if known.txn_start < 0:
            return None
        known.txn_start, known.txn_began_at = NO_OFFSET, NO_TIMESTAMP
        return self.unstable.end(known.producer_id, offset)

    def replay(
        self, header: BatchHeader, marker: Marker | None, now: Millis = NO_TIMESTAMP
    ) -> EndedTransaction | None:
        """Take over a batch that the log holds, whatever it is; what it ended, if anything."""
        if marker is not None:
            return self.end(marker, header.base_offset, header.max_timestamp, now)
        if header.producer_id >= 0 and not header.is_control:
            self.note(header, header.base_offset, now)
        return None

    # --- upkeep -------------------------------------------------------------------------

    def expire(self, now: Millis, quiet_ms: int) -> int:
        """Forget producers that were quiet for longer than ``quiet_ms``; how many.

        One that was read back from the log after a restart counts from now on.  One with an
        open transaction stays: whoever ends it must find where it began.
        """
        quiet = []
        for producer in self._producers.values():
            if producer.txn_start >= 0 > producer.txn_began_at:
                producer.txn_began_at = now
            if producer.heard_at == NO_TIMESTAMP:
                producer.heard_at = now
            elif now - producer.heard_at > quiet_ms and producer.txn_start < 0:
                quiet.append(producer.producer_id)
        for producer_id in quiet:
            del self._producers[producer_id]
        return len(quiet)

    def forget_transactions(self) -> None:
        """Those that began before the log's first segment: what it has of them begins them anew.

        Their markers may be gone: compaction needs none of a transaction that is not there, and
        a log that was to begin elsewhere never had them.
        """
        for producer in self._producers.values():
            producer.txn_start, producer.txn_began_at = NO_OFFSET, NO_TIMESTAMP
        self.unstable = Unstable()

    def _add(self, producer_id: ProducerId, epoch: ProducerEpoch) -> Producer:
        known = self._producers[producer_id] = Producer(producer_id, epoch)
        return known


def _not_begun(header: BatchHeader) -> InvalidTxnStateError:
    return InvalidTxnStateError(
        f"producer {header.producer_id} epoch {header.producer_epoch} has no transaction here, "
        "and its coordinator did not let it begin one"
    )
