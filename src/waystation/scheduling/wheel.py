"""The next messages to fall due, in memory: a slot for every few milliseconds.

1. What is due comes out by time, and by offset where times are equal.
2. The wheel holds everything before its ``edge`` and nothing at or behind it; the rest is in the
   index.  What is held too much can therefore be let go at any time: the edge moves back.

It knows no clock: what is due is asked with a time, which may also be earlier than the last.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from waystation.model.offsets import Millis

__all__ = ["Due", "TimingWheel"]

Due = tuple[int, int]
"""When a message is due, and the offset of its record."""

_SLOT_BITS: Final = 4


class TimingWheel:
    """Slots of 16 ms, found by their number; only those with something in them exist."""

    __slots__ = ("_front", "_front_slot", "_numbers", "_slots", "count", "edge")

    def __init__(self, edge: Due) -> None:
        self.edge = edge
        self.count = 0
        self._slots: dict[int, dict[Due, None]] = {}
        self._numbers: list[int] = []
        """The slots' numbers, as a heap; those of slots that are gone are dropped in passing."""
        self._front: list[Due] = []
        self._front_slot: int | None = None
        """The earliest slot, sorted; stays valid until something is added to it."""

    def add(self, due: Due) -> None:
        """Hold one more, which lies before the edge."""
        number = due[0] >> _SLOT_BITS
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = {}
            heappush(self._numbers, number)
        if due not in slot:
            slot[due] = None
            self.count += 1
        if number == self._front_slot:
            self._front_slot = None

    def extend(self, dues: Iterable[Due], edge: Due) -> None:
        """Hold everything up to a new edge."""
        for due in dues:
            self.add(due)
        self.edge = edge

    def discard(self, due: Due) -> None:
        """Hold it no more, if it was held."""
        number = due[0] >> _SLOT_BITS
        slot = self._slots.get(number)
        if slot is not None and due in slot:
            del slot[due]
            self.count -= 1
            if not slot:
                del self._slots[number]

    def first(self) -> Due | None:
        """The earliest of all."""
        number = self._first_slot()
        if number is None:
            return None
        return self._sorted(number)[0]

    def due(self, now: Millis, limit: int) -> list[Due]:
        """Up to ``limit`` that are due at ``now``, earliest first; they stay in."""
        found: list[Due] = []
        passed: list[int] = []
        while len(found) < limit and (number := self._first_slot()) is not None:
            slot = self._sorted(number)
            if slot[0][0] > now:
                break
            whole = slot[-1][0] <= now
            found += slot[: limit - len(found)] if whole else (d for d in slot if d[0] <= now)
            if not whole:
                break
            while self._numbers and self._numbers[0] == number:
                heappop(self._numbers)  # a slot that went and came is there twice
            passed.append(number)
        for number in passed:
            heappush(self._numbers, number)
        return found[:limit]

    def shed(self, keep: int) -> None:
        """Let go of the latest, slot by slot, while there are more than ``keep``."""
        numbers = sorted(self._slots)
        while self.count > keep and len(numbers) > 1:
            number = numbers.pop()
            slot = self._slots.pop(number)
            self.count -= len(slot)
            self.edge = (number << _SLOT_BITS, -1)
        self._numbers = numbers
        heapify(self._numbers)
        self._front_slot = None

    def _first_slot(self) -> int | None:
        numbers = self._numbers
        while numbers and numbers[0] not in self._slots:
            heappop(numbers)
        return numbers[0] if numbers else None

    def _sorted(self, number: int) -> list[Due]:
        slot = self._slots[number]
        if number == self._front_slot:
            if len(self._front) != len(slot):
                self._front = [one for one in self._front if one in slot]
        else:
            self._front, self._front_slot = sorted(slot), number
        return self._front
