"""One stretch of a log: a file of batches and its indexes, by offset, by time, of aborted writes.

1. Batches lie one behind the other; ``size_bytes`` and ``next_offset`` say where the next one goes.
2. An index entry always names the start of a batch.
3. A closed segment costs no descriptor until someone reads it, and its indexes no memory.

What happens to segments (rolling, flushing, deleting) is decided in ``log.py``.
"""

from pathlib import Path

from waystation.model.offsets import NO_TIMESTAMP, Millis, Offset
from waystation.records.header import Buffer
from waystation.storage import names
from waystation.storage.disk import DiskFile
from waystation.storage.index_file import IndexSync
from waystation.storage.offset_index import OffsetIndex
from waystation.storage.open_files import FileHandle, OpenFiles
from waystation.storage.time_index import TimeIndex
from waystation.storage.txn_index import AbortedTxn, TxnIndex
from waystation.storage.unstable import EndedTransaction
from waystation.storage.walk import BrokenBatchError, Step, walk
from waystation.telemetry.logs import get_logger

INDEX_INTERVAL_BYTES = 4096
"""How dense an index is that had to be made anew."""

_NOT_LOOKED_UP = Millis(-2)
_events = get_logger("storage")


class Segment:
    """A segment that may still grow, if it is its log's last."""

    __slots__ = (
        "_bytes_since_entry",
        "_ending",
        "_first_timestamp",
        "_folder",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_index",
        "_open_files",
        "_time_index",
        "base_offset",
        "created_at",
        "index_bytes",
        "log",
        "next_offset",
        "size_bytes",
        "txn_index",
    )

    def __init__(
        self,
        open_files: OpenFiles,
        folder: Path,
        base_offset: Offset,
        size_bytes: int,
        end: Offset,
        ending: str = "",
    ) -> None:
        """A segment that is there; ``end`` is the offset behind its last record.

        One that is not yet a part of its log has files with an ``ending`` to their names.
        """
        self._open_files = open_files
        self._folder = folder
        self._ending = ending
        self.base_offset = base_offset
        self.next_offset = end
        self.size_bytes = size_bytes
        self.created_at = NO_TIMESTAMP
        self.log = self._handle(names.LOG)
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self.txn_index: TxnIndex | None = None
        """The transactions that markers in this segment aborted; ``None`` if none did."""
        self._bytes_since_entry = 0
        self.index_bytes = 0
        self._first_timestamp = self._max_timestamp = _NOT_LOOKED_UP if size_bytes else NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        if not size_bytes:
            self.reset_indexes()

    @classmethod
    def create(
        cls, open_files: OpenFiles, folder: Path, base_offset: Offset, ending: str = ""
    ) -> "Segment":
        """A new, empty segment; its indexes get files once they have entries."""
        made = cls(open_files, folder, base_offset, 0, base_offset, ending)
        made.log.create = True
        made.log.open()
        return made

    def file(self) -> DiskFile:
        """The open ``.log`` file."""
        return self.log.file()

    @property
    def is_settled(self) -> bool:
        """Whether its file has the name it will keep; see ``swapping.py``."""
        return self.log.name.endswith(names.LOG)

    # --- writing ------------------------------------------------------------------------

    def append(
        self,
        batch: Buffer,
        nbytes: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Write the batch that ends with ``last_offset`` behind all others.

        HOT: once per batch; one write, and an index entry per interval
        (benchmarks/storage/append.py).
        """
        log = self.log
        log.pinned = True
        log.file().pwrite(batch, self.size_bytes)
        self.note(nbytes, last_offset, max_timestamp, index_interval_bytes)

    def note(
        self, nbytes: int, last_offset: int, max_timestamp: int, index_interval_bytes: int
    ) -> None:
        """The next batch was written, or found by recovery."""
        if max_timestamp > self._max_timestamp:
            if self._max_timestamp == _NOT_LOOKED_UP:
                self._look_up_timestamps()
            if max_timestamp > self._max_timestamp:
                self._max_timestamp = Millis(max_timestamp)
                self._max_timestamp_offset = Offset(last_offset)
        if self._bytes_since_entry > index_interval_bytes:
            self._add_entries(last_offset)
        self._bytes_since_entry += nbytes
        self.size_bytes += nbytes
        self.next_offset = Offset(last_offset + 1)

    def _add_entries(self, last_offset: int) -> None:
        """HOT: once per index interval, which is every batch where these are large."""
        offsets, times = self.offset_index.entries, self.time_index
        offsets.append(last_offset - self.base_offset, self.size_bytes)
        times.add(self.max_timestamp, self._max_timestamp_offset - self.base_offset)
        self._bytes_since_entry = 0
        self.index_bytes = max(offsets.size_bytes, times.entries.size_bytes)

    def _add_moment(self) -> None:
        self.time_index.add(self.max_timestamp, self._max_timestamp_offset - self.base_offset)

    def finish(self) -> None:
        """Nothing more is appended: the time index ends with the greatest timestamp."""
        if self.size_bytes:
            self._add_moment()
        self.save_indexes()

    def save_indexes(self) -> None:
        """Write index entries that are only in memory; a sync is the caller's business."""
        if self.size_bytes:
            self.offset_index.save()
            self.time_index.save()
            if self.txn_index is not None:
                self.txn_index.save()

    def begin_index_syncs(self) -> list[IndexSync]:
        """The index files that were changed since they were last synced."""
        if not self.size_bytes:
            return []
        indexes = [self.offset_index.entries, self.time_index.entries]
        if self.txn_index is not None:
            indexes.append(self.txn_index.entries)
        return [sync for index in indexes if (sync := index.begin_sync()) is not None]

    def release(self) -> None:
        """Let go of all descriptors; readers that hold one may go on."""
        self.log.release()
        for index in (self._offset_index, self._time_index, self.txn_index):
            if index is not None:
                index.handle.release()

    # --- cutting and rebuilding ---------------------------------------------------------

    def cut(self, position: int, next_offset: Offset) -> None:
        """Forget everything from ``position``, where the batch of ``next_offset`` begins."""
        self.rewind(next_offset)
        self.file().truncate(position)
        self.size_bytes, self.next_offset = position, next_offset
        self._max_timestamp = _NOT_LOOKED_UP if position else NO_TIMESTAMP
        self._bytes_since_entry = position - self.offset_index.up_to(position)

    def rewind(self, offset: Offset) -> int:
        """Drop index entries of batches that end at or after ``offset``.

        Returns the position of the last batch that still has one, or 0.  The file is not cut:
        recovery walks on from there and notes what it finds.
        """
        self.offset_index.cut(offset - self.base_offset)
        self.time_index.cut(offset - self.base_offset)
        self.forget_aborted(offset)
        self._first_timestamp = _NOT_LOOKED_UP
        last = self.time_index.last
        self._max_timestamp = Millis(last.timestamp)
        self._max_timestamp_offset = Offset(self.base_offset + last.offset)
        self._bytes_since_entry = 0
        return self.offset_index.up_to(self.size_bytes)

    def rebuild_indexes(self, index_interval_bytes: int = INDEX_INTERVAL_BYTES) -> None:
        """Make both indexes anew from the batches' headers, as far as they can be followed."""
        size, end = self.size_bytes, self.next_offset
        self._offset_index = OffsetIndex(self._new_handle(names.OFFSET_INDEX), 0)
        self._time_index = TimeIndex(self._new_handle(names.TIME_INDEX), 0)
        self._max_timestamp, self._bytes_since_entry, self.size_bytes = NO_TIMESTAMP, 0, 0
        try:
            for _, header in walk(self.file(), 0, size):
                self.note(
                    header.size_bytes,
                    header.last_offset,
                    header.newest_timestamp,
                    index_interval_bytes,
                )
        except BrokenBatchError as broken:
            _events.error("segment.damaged", path=str(self.log.path), found=str(broken))
        self.size_bytes, self.next_offset = size, end
        self.finish()
        for sync in self.begin_index_syncs():
            sync.file.datasync()
            sync.owner.finish_sync(sync)

    def reset_indexes(self) -> None:
        """Begin with empty indexes, whatever their files hold."""
        self._offset_index = OffsetIndex(self._new_handle(names.OFFSET_INDEX), 0)
        self._time_index = TimeIndex(self._new_handle(names.TIME_INDEX), 0)

    # --- aborted transactions -----------------------------------------------------------

    def adopt_txn_index(self, size_bytes: int) -> None:
        """There is a ``.txnindex`` file: take it as it is."""
        self.txn_index = TxnIndex(self._handle(names.TXN_INDEX), size_bytes)

    def begin_txn_index(self) -> TxnIndex:
        """An empty one, whatever its file holds."""
        self.txn_index = TxnIndex(self._new_handle(names.TXN_INDEX), 0)
        return self.txn_index

    def note_aborted(self, aborted: EndedTransaction | AbortedTxn) -> None:
        """A marker in this segment aborted a transaction; it follows all others."""
        (self.txn_index or self.begin_txn_index()).add(aborted)

    def forget_aborted(self, offset: Offset) -> None:
        """Forget markers at or behind ``offset``."""
        if self.txn_index is not None:
            self.txn_index.cut(self.base_offset, offset)

    # --- looking up ---------------------------------------------------------------------

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index; made anew from the log if it is lost or nonsense."""
        if self._offset_index is None:
            self._load_indexes()
        assert self._offset_index is not None, f"{self.log.path} has no index"
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, likewise."""
        if self._time_index is None:
            self._load_indexes()
        assert self._time_index is not None, f"{self.log.path} has no time index"
        return self._time_index

    def find(self, offset: Offset) -> Step | None:
        """The batch that holds ``offset``, or the first behind it; ``None`` past the end."""
        start = self.offset_index.before(offset - self.base_offset)
        for step in walk(self.file(), start, self.size_bytes):
            if step.header.next_offset > offset:
                return step
        return None

    @property
    def max_timestamp(self) -> Millis:
        """The greatest timestamp of any record, or -1."""
        if self._max_timestamp == _NOT_LOOKED_UP:
            self._look_up_timestamps()
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> Offset:
        """The last offset of the first batch that has the greatest timestamp."""
        return self._max_timestamp_offset if self.max_timestamp >= 0 else self.base_offset

    @property
    def has_records(self) -> bool:
        """Whether compaction left anything but headers; looks no further than it must."""
        try:
            steps = walk(self.file(), 0, self.size_bytes)
            return any(step.header.records_count for step in steps)
        except BrokenBatchError:
            return True

    @property
    def first_timestamp(self) -> Millis:
        """The greatest timestamp of the first batch, by which the segment's age is told."""
        if self._first_timestamp < 0 and self.size_bytes:
            try:
                self._first_timestamp = next(
                    walk(self.file(), 0, self.size_bytes)
                ).header.max_timestamp
            except BrokenBatchError:
                self._first_timestamp = NO_TIMESTAMP
        return self._first_timestamp

    def _look_up_timestamps(self) -> None:
        """From the last entry of the time index, and the few batches behind the last entries."""
        last = self.time_index.last
        self._max_timestamp = Millis(last.timestamp)
        self._max_timestamp_offset = Offset(self.base_offset + last.offset)
        try:
            for _, header in walk(
                self.file(), self.offset_index.up_to(self.size_bytes), self.size_bytes
            ):
                if header.newest_timestamp > self._max_timestamp:
                    self._max_timestamp = header.newest_timestamp
                    self._max_timestamp_offset = header.last_offset
        except BrokenBatchError:
            return

    def adopt_indexes(self) -> bool:
        """Take the index files as they are; false if one is missing.

        For recovery, which ``rewind``s them: entries of what a crash took are no nonsense.
        """
        offsets, times = self._handle(names.OFFSET_INDEX), self._handle(names.TIME_INDEX)
        try:
            self._offset_index = OffsetIndex(offsets, offsets.file().size())
            self._time_index = TimeIndex(times, times.file().size())
        except FileNotFoundError:
            return False
        return True

    def _load_indexes(self) -> None:
        sane = (
            self.adopt_indexes()
            and self.offset_index.is_sane(self.size_bytes)
            and self.time_index.is_sane(self.next_offset - 1 - self.base_offset)
        )
        if not sane:
            _events.warning("index.rebuilt", path=str(self.log.path))
            self.rebuild_indexes()
        self._bytes_since_entry = self.size_bytes - self.offset_index.up_to(self.size_bytes)

    def _handle(self, suffix: str) -> FileHandle:
        name = names.file_name(self.base_offset, suffix) + self._ending
        return FileHandle(self._open_files, self._folder, name)

    def _new_handle(self, suffix: str) -> FileHandle:
        handle = self._handle(suffix)
        handle.create = True
        return handle
