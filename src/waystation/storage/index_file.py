"""A file of entries of one width, whose fields rise from entry to entry.

New entries stay in memory until there is a page of them or someone saves; a crash loses some,
and recovery makes them anew.  A look-up in memory bisects there; one on disk reads a handful of
entries and then one page.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from operator import le
from struct import Struct
from typing import NamedTuple

from waystation.storage.disk import DiskFile
from waystation.storage.open_files import FileHandle

_PAGE_ENTRIES = 512


class IndexSync(NamedTuple):
    """A sync of an index: its file, and which of its changes are covered."""

    owner: "IndexFile"
    file: DiskFile
    changes: int


class IndexFile:
    """The entries of one index; what their fields mean is the index's business."""

    __slots__ = ("_changes", "_changes_synced", "_entry", "_handle", "_stored", "_tail", "_width")

    def __init__(self, handle: FileHandle, entry: Struct, stored: int) -> None:
        self._handle = handle
        self._entry = entry
        self._width = entry.size
        self._stored = stored
        self._tail = bytearray()
        # A file that is to be made may be one of an earlier life, to be emptied.
        self._changes = int(handle.create)
        self._changes_synced = 0

    def __len__(self) -> int:
        return self._stored + len(self._tail) // self._width

    def __getitem__(self, number: int) -> tuple[int, ...]:
        """Entry ``number``, from memory or from the file."""
        width = self._entry.size
        if number >= self._stored:
            return self._entry.unpack_from(self._tail, (number - self._stored) * width)
        return self._entry.unpack(self._handle.file().pread(width, number * width))

    @property
    def size_bytes(self) -> int:
        """How large the index is, saved or not."""
        return self._stored * self._width + len(self._tail)

    def append(self, *fields: int) -> None:
        """Add an entry behind all others; a full disk keeps it in memory.

        HOT: once per index interval.
        """
        self._tail += self._entry.pack(*fields)
        if len(self._tail) >= _PAGE_ENTRIES * self._width:
            with suppress(OSError):
                self.save()

    def last_up_to(self, field: int, limit: int) -> tuple[int, ...] | None:
        """The last entry whose ``field`` is at most ``limit``; ``None`` if there is none."""
        first_in_memory = self._entry.unpack_from(self._tail) if self._tail else None
        if first_in_memory is not None and first_in_memory[field] <= limit:
            return self._search(self._tail, field, limit)
        return self._search_file(field, limit)

    def save(self) -> None:
        """Write what is only in memory; a failed write leaves it there for the next time."""
        if self._tail:
            self._handle.pinned = True
            self._handle.file().pwrite(self._tail, self._stored * self._entry.size)
            self._stored += len(self._tail) // self._entry.size
            self._tail = bytearray()
            self._changes += 1

    def begin_sync(self) -> "IndexSync | None":
        """The file to sync, if it was changed since the last sync that counts."""
        if self._changes == self._changes_synced:
            return None
        self._handle.pinned = True
        return IndexSync(self, self._handle.file(), self._changes)

    def finish_sync(self, sync: "IndexSync") -> None:
        """The file was synced as it was when ``sync`` began.  Any thread."""
        self._changes_synced = sync.changes
        if self._changes == sync.changes:
            self._handle.pinned = False

    def keep_below(self, field: int, limit: int, floor: tuple[int, ...]) -> None:
        """Keep the leading entries that rise from ``floor`` and whose ``field`` is below ``limit``.

        What a crash left behind them may be anything, zeros for instance: they are looked at
        from the first one on.
        """
        count, before = 0, floor
        for entry in self:
            if entry[field] >= limit or any(map(le, entry, before)):
                break
            count, before = count + 1, entry
        self.keep(count)

    def since(self, field: int, least: int) -> Iterator[tuple[int, ...]]:
        """The entries from the first on whose ``field`` is at least ``least``."""
        numbers = range(len(self))
        return self._from(bisect_left(numbers, least, key=lambda number: self[number][field]))

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return self._from(0)

    def _from(self, number: int) -> Iterator[tuple[int, ...]]:
        width = self._entry.size
        for first in range(number, self._stored, _PAGE_ENTRIES):
            count = min(_PAGE_ENTRIES, self._stored - first)
            yield from self._entry.iter_unpack(
                self._handle.file().pread(count * width, first * width)
            )
        skipped = max(number - self._stored, 0)
        # A copy: whoever iterates may take its time.
        yield from self._entry.iter_unpack(bytes(self._tail[skipped * width :]))

    def keep(self, count: int) -> None:
        """Forget all but the first ``count`` entries."""
        if count < self._stored:
            self._tail = bytearray()
            self._handle.file().truncate(count * self._entry.size)
            self._stored = count
            self._changes += 1
        else:
            del self._tail[(count - self._stored) * self._entry.size :]

    def _search_file(self, field: int, limit: int) -> tuple[int, ...] | None:
        pages = range(0, self._stored, _PAGE_ENTRIES)
        page = bisect_right(pages, limit, key=lambda number: self[number][field])
        if page == 0:
            return None
        first = pages[page - 1]
        width = self._entry.size
        count = min(_PAGE_ENTRIES, self._stored - first)
        return self._search(self._handle.file().pread(count * width, first * width), field, limit)

    def _search(self, entries: bytes | bytearray, field: int, limit: int) -> tuple[int, ...] | None:
        entry, width = self._entry, self._entry.size
        found = bisect_right(
            range(len(entries) // width),
            limit,
            key=lambda number: entry.unpack_from(entries, number * width)[field],
        )
        return entry.unpack_from(entries, (found - 1) * width) if found else None
