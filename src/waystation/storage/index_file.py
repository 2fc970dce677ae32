"""A sparse index on disk: entries of fixed width whose fields rise from one to the next.

New entries are kept in memory and written by ``save``: a crash loses some, and recovery makes
them anew.  Only the active segment keeps its entries in memory; a closed one is searched on
disk, a few entries per look-up.
"""

import struct
from pathlib import Path

from waystation.storage.disk import Disk, DiskFile

Entry = tuple[int, ...]


class IndexFile:
    """The entries of one file; what they mean is its subclass's business."""

    __slots__ = (
        "_disk",
        "_entries",
        "_file",
        "_layout",
        "_offset_field",
        "_saved",
        "_width",
        "path",
    )

    def __init__(
        self, disk: Disk, path: Path, layout: struct.Struct, offset_field: int, *, active: bool
    ) -> None:
        self._disk = disk
        self._layout = layout
        self._width = layout.size
        self._offset_field = offset_field
        self._file: DiskFile | None = None
        self._entries: bytearray | None = bytearray() if active else None
        self._saved = 0
        self.path = path

    def __len__(self) -> int:
        return self.size_bytes // self._width

    @property
    def size_bytes(self) -> int:
        """How large the index is, saved or not."""
        return len(self._entries) if self._entries is not None else self._open().size()

    def load(self) -> None:
        """Take the entries into memory, to be added to."""
        size = self._open().size() // self._width * self._width
        self._entries = bytearray(self._open().pread(size, 0)) if size else bytearray()
        self._saved = len(self._entries)

    def check(self) -> bool:
        """Whether the entries in memory rise as they must."""
        last: Entry = (-1, -1)
        for entry in self._layout.iter_unpack(self._in_memory()):
            if entry[0] <= last[0] or entry[1] <= last[1]:
                return False
            last = entry
        return True

    def truncate(self, offset: int) -> None:
        """Forget entries at or after ``offset``, relative to the segment's base."""
        entries = self._in_memory()
        keep = len(entries)
        while keep and self.entry(keep // self._width - 1)[self._offset_field] >= offset:
            keep -= self._width
        del entries[keep:]
        if keep < self._saved:
            self._open().truncate(keep)
            self._saved = keep

    def save(self) -> None:
        """Write what is only in memory; survives a crash once ``datasync`` was called too."""
        if self._entries is not None and self._saved < len(self._entries):
            self._open().pwrite(self._entries[self._saved :], self._saved)
            self._saved = len(self._entries)

    def datasync(self) -> None:
        """Let what was saved survive a crash."""
        if self._file is not None:
            self._file.datasync()

    def seal(self) -> None:
        """Save, and search on disk from now on."""
        self.save()
        self._open()  # An empty index is a file too: absence means that it was lost.
        self._entries = None

    def forget_file(self) -> None:
        """Let go of the descriptor until the next look-up."""
        self._file = None

    def entry(self, number: int) -> Entry:
        """Entry ``number``, from memory or from disk."""
        if self._entries is not None:
            return self._layout.unpack_from(self._entries, number * self._width)
        return self._layout.unpack(self._open().pread(self._width, number * self._width))

    def append(self, *fields: int) -> None:
        """Add an entry after all others."""
        entries = self._in_memory()
        entries += self._layout.pack(*fields)

    def count_up_to(self, field: int, limit: int) -> int:
        """How many entries have ``field`` at or below ``limit``."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[field] <= limit:
                low = middle + 1
            else:
                high = middle
        return low

    def _in_memory(self) -> bytearray:
        assert self._entries is not None, f"{self.path} is not in memory"
        return self._entries

    def _open(self) -> DiskFile:
        if self._file is None:
            self._file = self._disk.open(self.path, create=True)
        return self._file
