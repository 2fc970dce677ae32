"""Where in a segment an offset lies.

Entries are Kafka's: 4 bytes of offset relative to the segment's base, 4 of position; each names
the start of a batch.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from waystation.storage.disk import Disk
from waystation.storage.index_file import IndexFile

_ENTRY = struct.Struct(">II")
_OFFSET, _POSITION = 0, 1


class Place(NamedTuple):
    """The start of a batch: its base offset, relative to the segment's, and its position."""

    offset: int
    position: int


BEGINNING = Place(0, 0)


class OffsetIndex(IndexFile):
    """One ``.index`` file."""

    __slots__ = ()

    def __init__(self, disk: Disk, path: Path, *, active: bool) -> None:
        super().__init__(disk, path, _ENTRY, _OFFSET, active=active)

    def add(self, offset: int, position: int) -> None:
        """Note that a batch begins here."""
        self.append(offset, position)

    def by_offset(self, offset: int) -> Place:
        """The last noted batch that begins at or before ``offset``."""
        return self._place(self.count_up_to(_OFFSET, offset))

    def by_position(self, position: int) -> Place:
        """The last noted batch that begins at or before ``position``."""
        return self._place(self.count_up_to(_POSITION, position))

    def _place(self, count: int) -> Place:
        return Place._make(self.entry(count - 1)) if count else BEGINNING
