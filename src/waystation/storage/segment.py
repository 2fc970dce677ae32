"""One stretch of a log: a file of batches and two sparse indexes, named by its first offset.

1. Bytes are only ever added at the end, whole batches at a time; a write that fails leaves the
   segment as it was.
2. A look-up costs one search of an index and a walk over at most about ``index.interval.bytes``.
3. A closed segment's file is opened when it is read and forgotten when others are read more.
"""

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from waystation.model.errors import CorruptBatchError
from waystation.model.offsets import Millis, Offset
from waystation.records.header import HEADER_BYTES, BatchHeader, peek
from waystation.storage.disk import Disk, DiskFile
from waystation.storage.offset_index import OffsetIndex
from waystation.storage.time_index import TimeIndex

LOG, INDEX, TIME_INDEX = ".log", ".index", ".timeindex"
DELETED = ".deleted"

_NEAR_BYTES = 8 << 10
NAME_DIGITS = 20


class Located(NamedTuple):
    """A batch and where it begins."""

    position: int
    header: BatchHeader


class OpenFiles:
    """The closed segments whose files are open, the least recently read first."""

    __slots__ = ("_limit", "_open")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: OrderedDict[Segment, None] = OrderedDict()

    def touch(self, segment: "Segment") -> None:
        """``segment`` is being read; another may be forgotten for it."""
        self._open[segment] = None
        self._open.move_to_end(segment)
        if len(self._open) > self._limit:
            self._open.popitem(last=False)[0].forget_files()

    def forget(self, segment: "Segment") -> None:
        """``segment`` is gone, or became active."""
        self._open.pop(segment, None)


class Segment:
    """The files of one base offset."""

    __slots__ = (
        "_directory",
        "_disk",
        "_file",
        "_files",
        "_since_entry",
        "active",
        "base_offset",
        "first_at",
        "index",
        "max_timestamp",
        "max_timestamp_offset",
        "size_bytes",
        "times",
    )

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        base_offset: Offset,
        files: OpenFiles,
        *,
        size_bytes: int = 0,
        active: bool = False,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._files = files
        self._file: DiskFile | None = None
        self._since_entry = 0
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.active = active
        self.index = OffsetIndex(disk, self.path(INDEX), active=active)
        self.times = TimeIndex(disk, self.path(TIME_INDEX), active=active)
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.first_at: Millis | None = None

    def path(self, suffix: str) -> Path:
        """One of the segment's files."""
        return self._directory / f"{self.base_offset:0{NAME_DIGITS}d}{suffix}"

    @property
    def file(self) -> DiskFile:
        """The batches; opened, or made, when first needed."""
        if not self.active:
            self._files.touch(self)
        if self._file is None:
            self._file = self._disk.open(self.path(LOG), create=self.active)
        return self._file

    # --- writing ------------------------------------------------------------------------

    def append(self, batch: memoryview, header: BatchHeader, base: Offset, interval: int) -> None:
        """Add one batch that was stamped with ``base``.

        HOT: once per batch.  If the write fails, what it wrote of the batch is cut off again.
        """
        position = self.size_bytes
        try:
            self.file.pwrite(batch, position)
        except OSError:
            self.file.truncate(position)
            raise
        self.note(position, len(batch), header, base, interval)

    def note(
        self, position: int, nbytes: int, header: BatchHeader, base: Offset, interval: int
    ) -> None:
        """A batch lies at ``position``: remember what is needed to find it."""
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = Offset(base + header.last_offset_delta)
        if self._since_entry > interval:
            self._since_entry = 0
            self.index.add(base - self.base_offset, position)
            self._note_time()
        self._since_entry += nbytes
        self.size_bytes = position + nbytes

    def _note_time(self) -> None:
        self.times.add(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def save_indexes(self) -> None:
        """Write the entries that are only in memory."""
        self.index.save()
        self.times.save()

    def close(self) -> None:
        """Become a segment that is only read."""
        if self.max_timestamp >= 0:
            self._note_time()
        self.index.seal()
        self.times.seal()
        self.active = False

    def reopen(self) -> None:
        """Become the active segment, with the indexes in memory."""
        self.active = True
        self._files.forget(self)
        self.index.load()
        self.times.load()

    def forget_files(self) -> None:
        """Let descriptors go once nobody reads through them any more."""
        if not self.active:
            self._file = None
            self.index.forget_file()
            self.times.forget_file()

    def truncate(self, size_bytes: int, next_offset: Offset) -> None:
        """Cut everything from ``size_bytes`` on; the segment must be active."""
        self.file.truncate(size_bytes)
        self.size_bytes = size_bytes
        self.index.truncate(next_offset - self.base_offset)
        self.times.truncate(next_offset - self.base_offset)
        self._since_entry = size_bytes

    # --- reading ------------------------------------------------------------------------

    def walk(self, position: int, window_bytes: int = _NEAR_BYTES) -> Iterator[Located]:
        """The batches from ``position`` on; ends before what is no whole batch."""
        window, start = b"", position
        while position + HEADER_BYTES <= self.size_bytes:
            at = position - start
            if at + HEADER_BYTES > len(window):
                window = self.file.pread(min(window_bytes, self.size_bytes - position), position)
                start, at = position, 0
            try:
                header = peek(memoryview(window), at)
            except CorruptBatchError:
                return
            if header.size_bytes < HEADER_BYTES or position + header.size_bytes > self.size_bytes:
                return
            yield Located(position, header)
            position += header.size_bytes

    def locate(self, offset: Offset) -> Located | None:
        """The first batch that ends after ``offset``."""
        near = self.index.by_offset(offset - self.base_offset)
        for found in self.walk(near.position):
            if found.header.last_offset >= offset:
                return found
        return None

    def boundary(self, start: int, limit: int) -> tuple[int, Offset | None]:
        """The end of the last batch that lies wholly within ``[start, limit)``.

        And the offset behind it, if any batch does.
        """
        near = self.index.by_position(limit)
        position, behind = start, None
        if near.position > start:
            position, behind = near.position, Offset(self.base_offset + near.offset)
        for found in self.walk(position):
            end = found.position + found.header.size_bytes
            if end > limit:
                break
            position, behind = end, found.header.next_offset
        return position, behind

    def newest(self) -> tuple[int, Offset]:
        """The greatest timestamp in the segment, and the last offset of its batch."""
        if not self.active and self.max_timestamp < 0:
            last = self.times.last
            self.max_timestamp = last.timestamp
            self.max_timestamp_offset = Offset(self.base_offset + last.offset)
        return self.max_timestamp, self.max_timestamp_offset

    def locate_time(self, timestamp: int) -> Located | None:
        """The first batch with a record at or after ``timestamp``."""
        before = self.times.before(timestamp)
        near = self.index.by_offset(before.offset)
        for found in self.walk(near.position):
            if found.header.max_timestamp >= timestamp:
                return found
        return None

    # --- going --------------------------------------------------------------------------

    def paths(self) -> Iterator[Path]:
        """Every file of the segment."""
        for suffix in (LOG, INDEX, TIME_INDEX):
            yield self.path(suffix)
