"""Files of what is pending, sorted by time; written once, read in pages, merged in the background.

An entry is a time and a code: the record's offset, doubled, plus one if the entry takes back
another.  Files are added up, never searched for the newest word: a record is pending at a time if
more entries there add it than take it back.  So files may be merged in any order and any company.

A file is pages of ``PAGE_ENTRIES``, each with a checksum over a column of times and one of codes,
and behind them the first entry of every page, which is all of it that is held in memory.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from crc32c import crc32c

from waystation.scheduling.errors import DamagedIndexError
from waystation.scheduling.files import IndexFile

__all__ = ["BEGINNING", "PAGE_ENTRIES", "Cursor", "Entry", "Run", "RunWriter", "merged", "summed"]

Entry = tuple[int, int]
"""A time and a code; sorted by time, then offset, an addition before what takes it back."""

BEGINNING: Final[Entry] = (-(1 << 63), 0)
"""Before every entry."""

PAGE_ENTRIES: Final = 255
_HEAD: Final = Struct("<III4x")
_PAGE_BYTES: Final = _HEAD.size + 16 * PAGE_ENTRIES
_MAGIC: Final = 0x31505357
_IS_SWAPPED: Final = sys.byteorder == "big"


class Run:
    """One sorted file; what lies before ``start`` does not count any more, in any file."""

    __slots__ = ("_fences", "_file", "entries", "last", "number", "start")

    def __init__(
        self, number: int, file: IndexFile, entries: int, fences: list[Entry], last: Entry
    ) -> None:
        self.number, self.entries, self.last = number, entries, last
        self.start = BEGINNING
        self._file, self._fences = file, fences

    @classmethod
    def opened(cls, number: int, file: IndexFile, entries: int) -> "Run":
        """One that a writer finished; raises ``DamagedIndexError`` if it is not what it was."""
        pages = -(-entries // PAGE_ENTRIES)
        count = pages + 1
        behind = pages * _HEAD.size + 16 * entries
        dues, codes = _columns(file.pread(_HEAD.size + 16 * count, behind), count, number)
        fences = list(zip(dues, codes, strict=True))
        last = fences.pop()
        return cls(number, file, entries, fences, last)

    @property
    def pages(self) -> int:
        """How many there are."""
        return len(self._fences)

    def page(self, at: int) -> list[Entry]:
        """The entries of one page."""
        return list(zip(*self._page(at), strict=True))

    def page_of(self, entry: Entry) -> int:
        """The page that ``entry`` is in, or would be in."""
        return max(bisect_left(self._fences, entry) - 1, 0)

    def count(self, due: int, offset: int) -> int:
        """How many entries add a record at a time, less those that take it back."""
        first, second = (due, offset << 1), (due, offset << 1 | 1)
        if not (self.start <= first and first <= self.last):
            return 0
        total = 0
        for at in range(self.page_of(first), self.pages):
            if self._fences[at] > second:
                break
            dues, codes = self._page(at)
            low, high = bisect_left(dues, due), bisect_right(dues, due)
            low = bisect_left(codes, first[1], low, high)
            for code in codes[low:high]:
                if code > second[1]:
                    break
                total += -1 if code & 1 else 1
        return total

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _page(self, at: int) -> "tuple[array[int], array[int]]":
        count = min(PAGE_ENTRIES, self.entries - at * PAGE_ENTRIES)
        page = self._file.pread(_HEAD.size + 16 * count, at * _PAGE_BYTES)
        return _columns(page, count, self.number)


class RunWriter:
    """Writes one file from entries that come in order."""

    __slots__ = ("_fences", "_file", "_held", "_last", "_number", "_position", "entries")

    def __init__(self, number: int, file: IndexFile) -> None:
        self._number, self._file = number, file
        self._held: list[Entry] = []
        self._fences: list[Entry] = []
        self._last = BEGINNING
        self._position = self.entries = 0

    def add(self, some: Sequence[Entry]) -> None:
        """Go on with ``some``."""
        self._held += some
        at = 0
        while len(self._held) - at >= PAGE_ENTRIES:
            self._write(self._held[at : at + PAGE_ENTRIES])
            at += PAGE_ENTRIES
        del self._held[:at]

    def finish(self) -> Run | None:
        """The file, synced; its name is the caller's business.  ``None`` if nothing came."""
        if self._held:
            self._write(self._held)
            self._held = []
        if not self.entries:
            return None
        self._file.pwrite(_framed([*self._fences, self._last]), self._position)
        self._file.datasync()
        return Run(self._number, self._file, self.entries, self._fences, self._last)

    def _write(self, page: list[Entry]) -> None:
        self._fences.append(page[0])
        self._last = page[-1]
        framed = _framed(page)
        self._file.pwrite(framed, self._position)
        self._position += len(framed)
        self.entries += len(page)


class Cursor:
    """Reads a file from some entry on."""

    __slots__ = ("_at", "_run", "held")

    def __init__(self, run: Run, start: Entry) -> None:
        start = max(start, run.start)
        self._run = run
        self.held: list[Entry] = []
        self._at = run.pages if run.last < start else run.page_of(start)
        if self._at < run.pages:
            self._read()
            del self.held[: bisect_left(self.held, start)]

    @property
    def is_exhausted(self) -> bool:
        """Whether everything that is left is held."""
        return self._at == self._run.pages

    def fill(self) -> bool:
        """Hold entries of two records at least, or all; false if there are none."""
        held = self.held
        while not self.is_exhausted and (not held or _group(held[0]) == _group(held[-1])):
            self._read()
        return bool(held)

    def take(self, until: Entry) -> list[Entry]:
        """What is held before ``until``."""
        at = bisect_left(self.held, until)
        taken = self.held[:at]
        del self.held[:at]
        return taken

    def _read(self) -> None:
        self.held += self._run.page(self._at)
        self._at += 1


def merged(cursors: Sequence[Cursor]) -> Iterator[tuple[list[Entry], Entry | None]]:
    """All entries in order and summed, some at a time, and what the rest comes at or after.

    Everything about one record at one time comes together; the rest is ``None`` at the end.
    """
    live = list(cursors)
    while live := [one for one in live if one.fill()]:
        ends = [_group(one.held[-1]) for one in live if not one.is_exhausted]
        until = min(ends) if ends else None
        part: list[Entry] = []
        for one in live:
            part += one.held if until is None else one.take(until)
        part.sort()
        yield summed(part), until
        if until is None:
            return


def summed(entries: list[Entry]) -> list[Entry]:
    """Sorted entries without those that take each other back."""
    kept: list[Entry] = []
    for entry in entries:
        # Within a record additions come first, so a stack pairs all that can be paired.
        if entry[1] & 1 and kept and kept[-1] == (entry[0], entry[1] - 1):
            kept.pop()
        else:
            kept.append(entry)
    return kept


def _group(entry: Entry) -> Entry:
    """The first entry that there may be about the same record at the same time."""
    return entry[0], entry[1] & -2


def _framed(entries: Sequence[Entry]) -> bytes:
    dues, codes = zip(*entries, strict=True)
    columns = array("q", dues)
    columns.extend(codes)
    if _IS_SWAPPED:
        columns.byteswap()
    content = columns.tobytes()
    return _HEAD.pack(_MAGIC, len(entries), crc32c(content)) + content


def _columns(page: bytes, count: int, number: int) -> "tuple[array[int], array[int]]":
    content = memoryview(page)[_HEAD.size :]
    if len(content) != 16 * count or _HEAD.unpack_from(page) != (_MAGIC, count, crc32c(content)):
        raise DamagedIndexError(f"file {number} of a schedule's index is damaged")
    dues, codes = array("q"), array("q")
    dues.frombytes(content[: 8 * count])
    codes.frombytes(content[8 * count :])
    if _IS_SWAPPED:
        dues.byteswap()
        codes.byteswap()
    return dues, codes
