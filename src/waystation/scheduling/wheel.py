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
from waystation.scheduling.dues import Due, packed, unpacked

__all__ = ["Due", "TimingWheel"]

_SLOT_BITS: Final = 4
_STALE: Final = 20_000


class TimingWheel:
    """Slots of 16 ms, found by their number; only those with something in them exist."""

    __slots__ = ("_backwards", "_front", "_front_slot", "_numbers", "_slots", "count", "edge")

    def __init__(self, edge: Due) -> None:
        self.edge = edge
        self.count = 0
        self._slots: dict[int, dict[int, None]] = {}
        self._numbers: list[int] = []
        """The slots' numbers, as a heap; those of slots that are gone are dropped in passing."""
        self._backwards: list[int] = []
        """The same below zero, so that the latest comes first."""
        self._front: list[int] = []
        self._front_slot: int | None = None
        """The earliest slot, sorted; stays valid until something is added to it."""

    def add(self, due: Due) -> None:
        """Hold one more, which lies before the edge."""
        number = due[0] >> _SLOT_BITS
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = {}
            self._note(number)
        one = packed(due)
        if one not in slot:
            slot[one] = None
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
        one = packed(due)
        if slot is not None and one in slot:
            del slot[one]
            self.count -= 1
            if not slot:
                del self._slots[number]

    def first(self) -> Due | None:
        """The earliest of all."""
        number = self._first_slot()
        if number is None:
            return None
        return unpacked(self._sorted(number)[0])

    def due(self, now: Millis, limit: int) -> list[Due]:
        """Up to ``limit`` that are due at ``now``, earliest first; they stay in."""
        found: list[int] = []
        passed: list[int] = []
        end = packed((now + 1, 0))
        while len(found) < limit and (number := self._first_slot()) is not None:
            slot = self._sorted(number)
            if slot[0] >= end:
                break
            whole = slot[-1] < end
            found += slot[: limit - len(found)] if whole else (one for one in slot if one < end)
            if not whole:
                break
            while self._numbers and self._numbers[0] == number:
                heappop(self._numbers)  # a slot that went and came is there twice
            passed.append(number)
        for number in passed:
            heappush(self._numbers, number)
        return [unpacked(one) for one in found[:limit]]

    def shed(self, keep: int, most: int) -> None:
        """Let go of the latest, slot by slot, while there are more than ``keep``.

        Not of all at once: so many, up to the end of a slot.  To let twenty thousand slots go
        takes longer than others should have to wait.
        """
        until = max(keep, self.count - most)
        while self.count > until and len(self._slots) > 1:
            number = -heappop(self._backwards)
            slot = self._slots.pop(number, None)
            if slot is not None:
                self.count -= len(slot)
                self.edge = (number << _SLOT_BITS, -1)
                if number == self._front_slot:
                    self._front_slot = None

    def _note(self, number: int) -> None:
        """There is a slot of that number; forget those that are gone, if they are many."""
        most = 4 * len(self._slots) + _STALE
        if len(self._numbers) > most or len(self._backwards) > most:
            self._numbers = list(self._slots)
            self._backwards = [-one for one in self._slots]
            heapify(self._numbers)
            heapify(self._backwards)
        else:
            heappush(self._numbers, number)
            heappush(self._backwards, -number)

    def _first_slot(self) -> int | None:
        numbers = self._numbers
        while numbers and numbers[0] not in self._slots:
            heappop(numbers)
        return numbers[0] if numbers else None

    def _sorted(self, number: int) -> list[int]:
        slot = self._slots[number]
        if number == self._front_slot:
            if len(self._front) != len(slot):
                self._front = [one for one in self._front if one in slot]
        else:
            self._front, self._front_slot = sorted(slot), number
        return self._front
