"""The list of all that was appended to a log with transactions, and what follows from it."""

from typing import NamedTuple

from waystation.records.control import Marker

Row = tuple[int, bytes, bytes]
"""Offset, key and value."""


class Event(NamedTuple):
    """One batch as it was appended: rows, or a marker."""

    base: int
    end: int
    producer: int
    epoch: int
    sequence: int
    rows: tuple[Row, ...]
    transactional: bool
    marker: Marker | None


class Transaction(NamedTuple):
    """What the list says of one."""

    producer: int
    events: list[Event]
    end: Event | None

    @property
    def first(self) -> int:
        return self.events[0].base

    @property
    def aborted(self) -> bool:
        return (
            self.end is not None and self.end.marker is not None and not self.end.marker.committed
        )


class Written:
    """Every batch and marker that the log must hold, in the order of offsets."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def cut(self, end: int) -> None:
        """Forget what lies behind ``end``."""
        self.events = [one for one in self.events if one.end <= end]

    def transactions(self) -> list[Transaction]:
        """All of them, those that are open last."""
        opened: dict[int, Transaction] = {}
        ended = []
        for one in self.events:
            if one.marker is not None:
                known = opened.pop(one.producer, None)
                if known is not None:
                    ended.append(known._replace(end=one))
            elif one.transactional:
                known = opened.setdefault(one.producer, Transaction(one.producer, [], None))
                known.events.append(one)
        return [*ended, *opened.values()]

    def open(self) -> list[Transaction]:
        """Those without a marker."""
        return [one for one in self.transactions() if one.end is None]

    def epoch_of(self, producer: int) -> int:
        """The producer's newest epoch, by its batches and markers."""
        return max((one.epoch for one in self.events if one.producer == producer), default=0)

    def coordinator_epoch_of(self, producer: int) -> int:
        """Which life of its coordinator spoke last."""
        markers = [one.marker for one in self.events if one.producer == producer and one.marker]
        return max((one.coordinator_epoch for one in markers), default=-1)

    def sequence_of(self, producer: int, epoch: int) -> int:
        """The sequence that follows in an epoch."""
        sent = [
            one
            for one in self.events
            if (one.producer, one.epoch) == (producer, epoch) and one.sequence >= 0
        ]
        return sent[-1].sequence + len(sent[-1].rows) if sent else 0
