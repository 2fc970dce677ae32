"""Which offset is the newest up to a time.

Entries are Kafka's: 8 bytes of timestamp, 4 of relative offset; an entry says that no record up to
that offset is younger.  Timestamps rise from entry to entry, whatever the order in which records
carry them.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from waystation.storage.disk import Disk
from waystation.storage.index_file import IndexFile

_ENTRY = struct.Struct(">qI")
_TIMESTAMP, _OFFSET = 0, 1


class Moment(NamedTuple):
    """The greatest timestamp up to a batch, and that batch's last offset, relative."""

    timestamp: int
    offset: int


LONG_AGO = Moment(-1, 0)


class TimeIndex(IndexFile):
    """One ``.timeindex`` file."""

    __slots__ = ()

    def __init__(self, disk: Disk, path: Path, *, active: bool) -> None:
        super().__init__(disk, path, _ENTRY, _OFFSET, active=active)

    @property
    def last(self) -> Moment:
        """The newest entry."""
        return self._moment(len(self))

    def add(self, timestamp: int, offset: int) -> None:
        """Note the greatest timestamp so far; nothing to note if it is not greater."""
        if timestamp > self.last.timestamp:
            self.append(timestamp, offset)

    def before(self, timestamp: int) -> Moment:
        """The last entry older than ``timestamp``: what is sought lies behind it."""
        return self._moment(self.count_up_to(_TIMESTAMP, timestamp - 1))

    def _moment(self, count: int) -> Moment:
        return Moment._make(self.entry(count - 1)) if count else LONG_AGO
