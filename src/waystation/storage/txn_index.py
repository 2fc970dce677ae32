"""Which transactions were aborted, in the order of their markers: beside the segment of those.

Entries are Kafka's, 34 bytes: a version, the producer, the offsets of the first record and of the
marker, and the last stable offset once the marker was written.  Two promises:

1. an entry is as safe as its marker: written at the same time, made anew with it after a crash;
2. whoever reads up to an end has met all that concerns it at the first entry whose last stable
   offset is at or past that end.

Most segments have none: the file is made with the first entry.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from waystation.model.ids import ProducerId
from waystation.model.offsets import Offset
from waystation.storage.index_file import IndexFile
from waystation.storage.open_files import FileHandle
from waystation.storage.unstable import EndedTransaction

ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0
_LAST: Final = 3


class AbortedTxn(NamedTuple):
    """A transaction that was taken back: the producer's records in ``[first, last)``."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    """Where its marker lies."""
    last_stable: Offset
    """Everything before it was decided when the marker was written."""


class TxnIndex:
    """One ``.txnindex`` file."""

    __slots__ = ("entries", "handle")

    def __init__(self, handle: FileHandle, size_bytes: int) -> None:
        self.handle = handle
        self.entries = IndexFile(handle, ENTRY, size_bytes // ENTRY.size)

    def add(self, aborted: EndedTransaction | AbortedTxn) -> None:
        """Note a transaction whose abort marker was written behind all others."""
        self.entries.append(_VERSION, *aborted)

    def since(self, offset: Offset) -> Iterator[AbortedTxn]:
        """Those whose markers lie at or behind ``offset``."""
        for entry in self.entries.since(_LAST, offset):
            yield AbortedTxn._make(entry[1:])

    def save(self) -> None:
        """Write the entries that are only in memory."""
        self.entries.save()

    def is_sane(self, base: Offset, end: Offset) -> bool:
        """Whether every entry is one of a segment that holds ``[base, end)``."""
        return self._count(base, end) == len(self.entries)

    def cut(self, base: Offset, end: Offset) -> None:
        """Forget markers at or behind ``end``, and what a crash left behind the last sane entry."""
        self.entries.keep(self._count(base, end))

    def _count(self, base: Offset, end: Offset) -> int:
        """How many entries from the first on name rising markers in ``[base, end)``."""
        count, least = 0, int(base)
        for version, producer_id, first, last, stable in self.entries:
            is_one = version == _VERSION and producer_id >= 0 and 0 <= first < last
            if not (is_one and least <= last < end and 0 <= stable <= last + 1):
                break
            count, least = count + 1, last + 1
        return count
