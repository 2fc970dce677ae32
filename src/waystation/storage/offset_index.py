"""Where in a segment an offset lies: sparse, so that a look-up ends with a short walk.

Entries are Kafka's: the last offset of a batch, relative to the segment's base, and the position
at which that batch begins, four bytes each.
"""

from struct import Struct

from waystation.storage.index_file import IndexFile
from waystation.storage.open_files import FileHandle

ENTRY = Struct(">ii")
_OFFSET, _POSITION = 0, 1
# The first batch of a segment has no entry, so both are greater.
_FLOOR = (0, 0)


class OffsetIndex:
    """One ``.index`` file."""

    __slots__ = ("entries", "handle")

    def __init__(self, handle: FileHandle, size_bytes: int) -> None:
        self.handle = handle
        self.entries = IndexFile(handle, ENTRY, size_bytes // ENTRY.size)

    @property
    def size_bytes(self) -> int:
        """How large the index is, saved or not."""
        return self.entries.size_bytes

    @property
    def last_offset(self) -> int:
        """The relative offset of the last entry, or 0."""
        return self.entries[len(self.entries) - 1][_OFFSET] if self.entries else 0

    def add(self, last_offset: int, position: int) -> None:
        """Note the batch that begins at ``position``; its last offset is relative."""
        self.entries.append(last_offset, position)

    def before(self, offset: int) -> int:
        """The start of a batch at or before the one that holds ``offset``, a relative one."""
        found = self.entries.last_up_to(_OFFSET, offset)
        return found[_POSITION] if found else 0

    def up_to(self, position: int) -> int:
        """The last known start of a batch at or before ``position``."""
        found = self.entries.last_up_to(_POSITION, position)
        return found[_POSITION] if found else 0

    def is_sane(self, size_bytes: int) -> bool:
        """Whether the last entry lies within a segment of ``size_bytes``."""
        return not self.entries or 0 <= self.entries[len(self.entries) - 1][_POSITION] < size_bytes

    def save(self) -> None:
        """Write the entries that are only in memory."""
        self.entries.save()

    def cut(self, offset: int) -> None:
        """Forget batches that end at or after ``offset``."""
        self.entries.keep_below(_OFFSET, offset, _FLOOR)
