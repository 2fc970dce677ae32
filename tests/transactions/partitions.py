"""Partitions as far as transactions see them: what is open in them, and how it ended.

The rules are those of the real log: a newer epoch fences older ones, a marker ends what its
producer has open, markers of an earlier coordinator are refused once a later one has spoken, and
so is one that comes again after the next transaction has begun under its epoch.
"""

from typing import NamedTuple

from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition
from waystation.transactions.commands import MarkersDue


class Tag(NamedTuple):
    """A transaction as its producer thinks of it."""

    instance: int
    number: int


class Write(NamedTuple):
    """One batch."""

    tag: Tag
    number: int


class _Producer:
    def __init__(self) -> None:
        self.epoch = ProducerEpoch(-1)
        self.coordinator_epoch = -1
        self.markers = 0
        self.open: list[Write] = []


class Partition:
    """One partition; never loses anything."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.ended: dict[Write, bool] = {}
        """Every write whose transaction has ended here: whether it was committed."""
        self._producers: dict[ProducerId, _Producer] = {}
        self._seen: set[Write] = set()

    def holds(self, write: Write) -> bool:
        return write in self._seen

    def in_transaction(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        producer = self._of(producer_id)
        return bool(producer.open) and producer.epoch == epoch

    def markers(self, producer_id: ProducerId) -> int:
        """How many have been written: a write that was admitted before the last is too late."""
        return self._of(producer_id).markers

    def is_fenced(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        return epoch < self._of(producer_id).epoch

    def append(self, producer_id: ProducerId, epoch: ProducerEpoch, write: Write) -> None:
        if write in self._seen:
            return  # the sequence numbers tell
        producer = self._of(producer_id)
        assert epoch >= producer.epoch, f"{write} of a fenced epoch was let through"
        producer.epoch = epoch
        producer.open.append(write)
        self._seen.add(write)

    def end(self, due: MarkersDue, *, is_repeated: bool = False) -> bool:
        """Write a marker; false where it is refused, since it comes too late."""
        producer = self._of(due.producer_id)
        if due.coordinator_epoch < producer.coordinator_epoch:
            return False
        if is_repeated and (due.epoch < producer.epoch or self._is_late(due, producer)):
            return False
        assert due.epoch >= producer.epoch, f"{due} comes after epoch {producer.epoch}"
        assert not self._is_late(due, producer), f"{due} would be refused, and was never written"
        producer.epoch, producer.coordinator_epoch = due.epoch, due.coordinator_epoch
        producer.markers += 1
        for write in producer.open:
            self.ended[write] = due.commit
        producer.open = []
        return True

    def _is_late(self, due: MarkersDue, producer: _Producer) -> bool:
        return due.bumped and bool(producer.open) and due.epoch == producer.epoch

    def open_writes(self) -> dict[ProducerId, list[Write]]:
        return {who: one.open for who, one in self._producers.items() if one.open}

    def is_open(self, producer_id: ProducerId) -> bool:
        return bool(self._of(producer_id).open)

    def _of(self, producer_id: ProducerId) -> _Producer:
        return self._producers.setdefault(producer_id, _Producer())
