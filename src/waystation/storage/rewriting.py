"""The writing of one compacted segment beside those it is made from.

All of it happens in a thread.  The new segment has files of its own, whose names end in
``.cleaned``; nothing else sees them until it is complete, synced, and committed to.
"""

import errno
from collections.abc import Callable, Sequence

from waystation.model.offsets import Millis, Offset
from waystation.records.header import Buffer, peek
from waystation.records.sieve import Sieve
from waystation.storage import names
from waystation.storage.disk import DiskFile
from waystation.storage.log import Log
from waystation.storage.open_files import OpenFiles
from waystation.storage.segment import Segment
from waystation.storage.swapping import Swap
from waystation.storage.txn_index import ENTRY as TXN_ENTRY
from waystation.storage.walk import go_through

_WRITE_BYTES = 1 << 20
_OPEN_FILES = 8
_INT32_MAX = (1 << 31) - 1


class Source:
    """One segment to be read; its file stays readable whatever becomes of the segment."""

    __slots__ = ("file", "size_bytes")

    def __init__(self, segment: Segment) -> None:
        """On the loop's thread, which owns the segment's handles."""
        self.file: DiskFile = segment.file()
        self.size_bytes = segment.size_bytes


class Writing:
    """One new segment, from the first batch to the commit."""

    def __init__(
        self, log: Log, swap: Swap, group: Sequence[Segment], spent: Callable[[int], None]
    ) -> None:
        self._log = log
        self._swap = swap
        self._base = group[0].base_offset
        self._sources = [Source(one) for one in group]
        self._aborted = [
            aborted
            for one in group
            if one.txn_index is not None
            for aborted in one.txn_index.since(one.base_offset)
        ]
        self._spent = spent
        self._fresh: Segment | None = None
        self._out = bytearray()
        self._left_bytes = self.source_bytes = sum(one.size_bytes for one in group)

    def run(self, sieve: Sieve) -> None:
        """Make the new segment and commit to it, unless it would be what the old one is."""
        self._check_space()
        fresh = self._fresh = self._create()
        for source in self._sources:
            self._sift(source, sieve)
        self._put()
        if not sieve.changed and len(self._sources) == 1:
            self._swap.discard()
            return
        self._note_aborted(fresh, sieve)
        self._sync(fresh)
        self._swap.size_bytes = fresh.size_bytes
        self._swap.commit()

    def keep(self, content: Buffer, batch: Buffer, last_offset: Offset, newest: Millis) -> None:
        """Write what is left of a batch.  HOT: once per batch that is left."""
        fresh = self._fresh
        assert fresh is not None, "nothing to write to"
        if fresh.size_bytes + len(content) + self._left_bytes > _INT32_MAX:
            # A batch that learns when its tombstones may go grows; not past all bounds.
            content, newest = batch, peek(batch).newest_timestamp
        fresh.note(len(content), last_offset, newest, self._log.settings.index_interval_bytes)
        self._out += content
        if len(self._out) >= _WRITE_BYTES:
            self._put()

    def _sift(self, source: Source, sieve: Sieve) -> None:
        is_last = source is self._sources[-1]

        def take(window: memoryview, position: int) -> int:
            taken = sieve.take(window, source.size_bytes - position if is_last else -1)
            self._left_bytes -= taken
            self._spent(taken)
            return taken

        go_through(source.file, source.size_bytes, take)

    def _check_space(self) -> None:
        """The new segment is hardly ever larger; appends must not be refused because of it."""
        home = self._log.directory
        free_bytes = home.disk.free_bytes(home.path)
        if home.reserve.spent or free_bytes < self.source_bytes + home.reserve.nbytes:
            raise OSError(
                errno.ENOSPC, f"{self.source_bytes} bytes are needed, {free_bytes} are free"
            )

    def _create(self) -> Segment:
        """Under the lock: a directory of this name may be another log's a moment later."""
        files = OpenFiles(self._log.directory.disk, _OPEN_FILES)
        with self._log.cutting:
            self._swap.check()
            fresh = Segment.create(files, self._log.path, self._base, names.CLEANED)
            fresh.offset_index.handle.open()
            fresh.time_index.handle.open()
            if names.TXN_INDEX in self._swap.indexes:
                fresh.begin_txn_index().handle.open()
        return fresh

    def _note_aborted(self, fresh: Segment, sieve: Sieve) -> None:
        """Who reads what was there before this pass must know what to leave out."""
        for one in self._aborted:
            if one.last_offset in sieve.needed_markers:
                fresh.note_aborted(one)
                self._swap.txn_bytes += TXN_ENTRY.size

    def _put(self) -> None:
        """Write the end of what was noted, and let the disk begin with it."""
        assert self._fresh is not None, "nothing to write to"
        file, out = self._fresh.file(), self._out
        position = self._fresh.size_bytes - len(out)
        file.pwrite(out, position)
        file.start_writeback(position, len(out))
        self._spent(len(out))
        out.clear()

    def _sync(self, fresh: Segment) -> None:
        """Nothing is committed to that a crash could tear."""
        fresh.finish()
        fresh.file().datasync()
        for sync in fresh.begin_index_syncs():
            sync.file.datasync()
