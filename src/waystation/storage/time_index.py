"""Which offset is the newest up to a time: sparse, beside the offset index.

Entries are Kafka's: the greatest timestamp so far in eight bytes, and in four the relative offset
that ends the batch which brought it.  Timestamps rise from entry to entry, whatever the order in
which records carry them.
"""

from struct import Struct
from typing import NamedTuple

from waystation.storage.index_file import IndexFile
from waystation.storage.open_files import FileHandle

ENTRY = Struct(">qi")
_TIMESTAMP, _OFFSET = 0, 1
_FLOOR = (0, -1)


class Moment(NamedTuple):
    """The greatest timestamp up to a batch, and that batch's last offset, relative."""

    timestamp: int
    offset: int


LONG_AGO = Moment(-1, 0)


class TimeIndex:
    """One ``.timeindex`` file."""

    __slots__ = ("_last_timestamp", "entries", "handle")

    def __init__(self, handle: FileHandle, size_bytes: int) -> None:
        self.handle = handle
        self.entries = IndexFile(handle, ENTRY, size_bytes // ENTRY.size)
        self._last_timestamp = self.last.timestamp

    @property
    def last(self) -> Moment:
        """The newest entry."""
        return Moment._make(self.entries[len(self.entries) - 1]) if self.entries else LONG_AGO

    @property
    def size_bytes(self) -> int:
        """How large the index is, saved or not."""
        return self.entries.size_bytes

    def add(self, timestamp: int, offset: int) -> None:
        """Note the greatest timestamp so far; nothing to note unless it grew."""
        if timestamp > self._last_timestamp:
            self.entries.append(timestamp, offset)
            self._last_timestamp = timestamp

    def before(self, timestamp: int) -> Moment:
        """The last entry older than ``timestamp``: what is sought lies behind it."""
        found = self.entries.last_up_to(_TIMESTAMP, timestamp - 1)
        return Moment._make(found) if found else LONG_AGO

    def is_sane(self, last_offset: int) -> bool:
        """Whether the last entry lies within a segment that ends with ``last_offset``."""
        return not self.entries or 0 <= self.last.offset <= last_offset

    def save(self) -> None:
        """Write the entries that are only in memory."""
        self.entries.save()

    def cut(self, offset: int) -> None:
        """Forget entries at or after ``offset``."""
        self.entries.keep_below(_OFFSET, offset, _FLOOR)
        self._last_timestamp = self.last.timestamp
