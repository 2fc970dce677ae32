"""A companion's partition as all replicas have it: what is committed, and a tail that may go."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder, rows_of
from waystation.records.control import Marker, marker_batch
from waystation.records.header import BatchHeader, peek, stamp
from waystation.records.record import Headers, Row
from waystation.scheduling.keeping import Keeping
from waystation.scheduling.records import Decision, decision_batch, read_decision


class Companion:
    """Batches with their offsets; ``committed`` is where the high watermark is."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = self.committed = Offset(0)
        self.epoch = LeaderEpoch(0)
        self._epochs: dict[Offset, LeaderEpoch] = {}

    def append(self, batch: bytes | bytearray) -> Offset:
        stamped = bytearray(batch)
        stamp(stamped, 0, self.end, self.epoch)
        at, self.end = self.end, peek(stamped).next_offset
        self.batches.append(bytes(stamped))
        self._epochs[self.end] = self.epoch
        return at

    def produce(
        self,
        messages: Sequence[tuple[bytes, Headers]],
        now: Millis,
        producer: ProducerId | None = None,
    ) -> Offset:
        builder = BatchBuilder(is_transactional=producer is not None)
        if producer is not None:
            builder.producer_id, builder.producer_epoch = producer, ProducerEpoch(0)
        for value, headers in messages:
            assert builder.append(b"k", value, headers, timestamp=now)
        return self.append(builder.build())

    def mark(self, producer: ProducerId, committed: bool, now: Millis) -> Offset:
        return self.append(marker_batch(Marker(producer, ProducerEpoch(0), 0, committed), now))

    def decide(self, decision: Decision, now: Millis) -> Offset:
        return self.append(decision_batch(decision, now))

    def from_(self, offset: Offset) -> list[bytes]:
        """What is committed from ``offset`` on."""
        first = bisect_left(self.batches, offset, key=_base)
        return self.batches[first : bisect_left(self.batches, self.committed, key=_base)]

    def row(self, offset: Offset) -> Row | None:
        at = bisect_right(self.batches, offset, key=_base) - 1
        if at < 0 or peek(self.batches[at]).is_control:
            return None
        return next((row for row in rows_of(self.batches[at]) if row[0] == offset), None)

    def cut(self, end: Offset) -> None:
        """A new leader has no more than this."""
        self.batches = [one for one in self.batches if peek(one).next_offset <= end]
        self.end = end

    def ends(self) -> list[Offset]:
        """Where a leader's log may end: what is committed is in all of them."""
        tail = [peek(one).next_offset for one in self.batches]
        return [self.committed, *(end for end in tail if end > self.committed)]

    def has(self, offset: Offset, epoch: LeaderEpoch) -> bool:
        """Whether the batch before ``offset`` is of that epoch."""
        return offset == 0 or (offset <= self.end and self._epochs.get(offset) == epoch)

    def clean(self, keeping: Keeping) -> None:
        """Leave out every record that is not needed; offsets stay."""
        self.batches = [left for one in self.batches for left in self._left(one, keeping)]

    def _left(self, batch: bytes, keeping: Keeping) -> list[bytes]:
        header = peek(batch)
        if header.is_control:
            is_decision = read_decision(batch) is not None
            stays = not is_decision or keeping.keeps(header.base_offset, is_decision=True)
            return [batch] if stays else []
        rows = rows_of(batch)
        kept = [row for row in rows if keeping.keeps(Offset(row[0]), is_decision=False)]
        return [batch] if len(kept) == len(rows) else [self._alone(header, row) for row in kept]

    def _alone(self, header: BatchHeader, row: Row) -> bytes:
        """One record of a batch by itself, where it was."""
        offset, timestamp, key, value, headers = row
        builder = BatchBuilder(
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            is_transactional=header.is_transactional,
        )
        assert builder.append(key, value, headers, timestamp=timestamp)
        alone = bytearray(builder.build())
        stamp(alone, 0, Offset(offset), header.partition_leader_epoch)
        self._epochs[Offset(offset + 1)] = header.partition_leader_epoch
        return bytes(alone)


def _base(batch: bytes) -> Offset:
    return Offset(int.from_bytes(batch[:8], "big"))
