"""Packs damaged columns that end where readable memory ends: one byte further kills this.

Run as a program by ``test_packing.py``; prints how many it survived.
"""

import mmap
import sys
from array import array
from contextlib import suppress
from random import Random

from tests.records.guarded import guarded_page
from waystation.model.errors import WaystationError
from waystation.records.packing import ByteRows, HeaderRows, NumberRows, Rows, RowWriter, lanes_of

ROWS = 6
EDGES = (0, 0, 1, 5, 7, 8, 9, -1, 1 << 30, -(1 << 31), (1 << 31) - 1)


class Guarded:
    """Pages of their own for each buffer, which ends where its page does."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._pages = [guarded_page() for _ in range(16)]
        self._next = 0

    def __call__(self, content: bytes) -> memoryview:
        page = self._pages[self._next % len(self._pages)]
        self._next += 1
        view = page[mmap.PAGESIZE - len(content) :]
        view[:] = content
        return view

    def ends(self, upto: int) -> memoryview:
        """Mostly ends that fit, some that do not."""
        found = sorted(self._chance.randint(0, upto) for _ in range(ROWS + 1))
        if self._chance.random() < 0.5:
            found[self._chance.randrange(ROWS + 1)] = self._chance.choice(EDGES)
        return self(array("i", found).tobytes()).cast("i")

    def bits(self) -> memoryview | None:
        return self(self._chance.randbytes(1)) if self._chance.random() < 0.5 else None

    def column(self) -> ByteRows:
        content = self._chance.randbytes(self._chance.randint(0, 9))
        return ByteRows(self.bits(), self.ends(len(content)), self(content), 0, ROWS)

    def numbers(self) -> NumberRows:
        found = array("q", [self._chance.choice(EDGES) for _ in range(ROWS)])
        return NumberRows(self.bits(), self(found.tobytes()).cast("q"), 0, ROWS)


def main(count: int) -> None:
    chance = Random(9)
    guarded = Guarded(chance)
    order, lanes = array("i", range(ROWS)), array("i", [0] * ROWS)
    packed = 0
    for _ in range(count):
        guarded_headers = HeaderRows(
            guarded.bits(), guarded.ends(ROWS), guarded.column(), guarded.column(), ROWS, 0, ROWS
        )
        times = guarded.numbers() if chance.random() < 0.2 else None
        rows = Rows(ROWS, guarded.column(), guarded.column(), times, guarded_headers, now_ms=1)
        batch = RowWriter(chance.choice((0, 64, 4_096)))
        with suppress(WaystationError):
            batch.fill(rows, order, 0, ROWS, chance.choice((70, 1 << 20)))
        packed += batch.records_count
        with suppress(WaystationError):
            lanes_of(rows, guarded.numbers(), None, array("i", [0]), array("i", [5]), lanes)
    print(packed)  # noqa: T201  # the parent reads it


if __name__ == "__main__":
    main(int(sys.argv[1]))
