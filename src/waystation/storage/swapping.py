"""How a compacted segment takes the place of those it was made from, whatever happens meanwhile.

The new segment is complete and synced, under names that end in ``.cleaned``.  Then, with the
directory synced after each line:

1. its indexes are renamed to ``.swap``;
2. its log is renamed to ``.swap``: from here on the old segments are as good as gone;
3. the old files are renamed to ``.deleted``, and the new indexes get their final names;
4. the new log gets its final name.

A crash before 2 leaves the old segments, and the rest is swept away; a crash after it leaves a
log that ends in ``.swap``, and ``finish_swaps`` does what is left to do.  Because the indexes come
first, one that has its final name beside such a log is a new one.  For that to be true of aborted
transactions, the new segment has a file of them, if an empty one, wherever an old one had.

Lines 3 and 4 are renames on the loop's thread; syncs are for another.  Readers that hold the old
files go on with them.
"""

from pathlib import Path

from waystation.model.offsets import Millis, Offset
from waystation.storage import names
from waystation.storage.disk import Disk
from waystation.storage.log import Log
from waystation.storage.segment import Segment
from waystation.storage.walk import BrokenBatchError, walk
from waystation.telemetry.logs import get_logger

_events = get_logger("storage")


class OvertakenError(Exception):
    """The log was cut or deleted while it was compacted."""


class Swap:
    """One new segment and the old ones it replaces."""

    __slots__ = (
        "_cuts",
        "_fresh",
        "_log",
        "_now",
        "_old",
        "indexes",
        "size_bytes",
        "txn_bytes",
    )

    def __init__(self, log: Log, old: list[Segment], now: Millis, cuts: int) -> None:
        """``cuts`` is the log's when it was decided what to compact."""
        self._log = log
        self._old = old
        self._now = now
        self._cuts = cuts
        self._fresh: Segment | None = None
        self.size_bytes = 0
        """Of the new segment's log, from when it is complete."""
        self.txn_bytes = 0
        """Of its index of aborted transactions, likewise."""
        aborting = any(one.txn_index is not None for one in old)
        self.indexes = names.INDEXES if aborting else (names.OFFSET_INDEX, names.TIME_INDEX)
        """Those that the new segment has."""

    # --- by any thread ------------------------------------------------------------------

    def check(self) -> None:
        """Raise if the log was cut or deleted: its directory may be another's by now."""
        if self._log.cuts != self._cuts:
            raise OvertakenError

    def commit(self) -> None:
        """Lines 1 and 2, for a new segment whose files are synced."""
        with self._log.cutting:
            self.check()
            for suffix in self.indexes:
                self._rename(suffix, names.CLEANED, names.SWAP)
            self._sync_names()
            self._rename(names.LOG, names.CLEANED, names.SWAP)
            self._sync_names()
            self._log.swap = self

    def sync(self) -> None:
        """The end of lines 3 and 4."""
        with self._log.cutting:
            self.check()
            self._sync_names()

    def discard(self) -> None:
        """Remove what was prepared, whether or not it was committed."""
        with self._log.cutting:
            if self._log.cuts == self._cuts and self._log.directory.offline is None:
                self._remove()

    # --- by the loop's thread -----------------------------------------------------------

    def replace(self) -> bool:
        """Line 3; false if the log does not hold the old segments any more."""
        log, base = self._log, self._old[0].base_offset
        fresh = Segment(
            log.directory.files, log.path, base, self.size_bytes, self._old[-1].next_offset
        )
        fresh.log.name += names.SWAP
        if names.TXN_INDEX in self.indexes:
            fresh.adopt_txn_index(self.txn_bytes)
        if not log.replace_compacted(self._old, fresh):
            return False
        self._fresh = fresh
        for segment in self._old:
            log.directory.drop_files(log, segment, self._now)
        for suffix in self.indexes:
            self._rename(suffix, names.SWAP, "")
        return True

    def settle(self) -> None:
        """Line 4."""
        assert self._fresh is not None, "settled before it was replaced"
        self._rename(names.LOG, names.SWAP, "")
        self._fresh.log.name = names.file_name(self._fresh.base_offset, names.LOG)
        self._log.swap = None

    def finish(self) -> None:
        """Everything that is left, at once, for whoever holds the log's lock and cuts it."""
        if self._fresh is None and not self.replace():
            self._remove()
            return
        self._sync_names()
        self.settle()
        self._sync_names()

    # --- files --------------------------------------------------------------------------

    def _remove(self) -> None:
        """The log first: one that is committed must not be left without its indexes."""
        committed, self._log.swap = self._log.swap is self, None
        for suffix in (names.LOG, *names.INDEXES):
            for ending in (names.CLEANED, names.SWAP):
                self._log.directory.disk.unlink(self._path(suffix, ending))
            if committed:
                self._sync_names()

    def _rename(self, suffix: str, ending: str, to: str) -> None:
        self._log.directory.disk.rename(self._path(suffix, ending), self._path(suffix, to))

    def _path(self, suffix: str, ending: str) -> Path:
        return self._log.path / (names.file_name(self._old[0].base_offset, suffix) + ending)

    def _sync_names(self) -> None:
        self._log.directory.disk.sync_directory(self._log.path)


def finish_swaps(disk: Disk, folder: Path) -> None:
    """Carry out what was committed when the process before ended."""
    found = [entry.name for entry in disk.entries(folder) if not entry.is_directory]
    for name in found:
        base, suffix = names.parse_file_name(name) or (Offset(-1), "")
        if suffix == names.LOG + names.SWAP:
            _finish(disk, folder, base, found)


def _finish(disk: Disk, folder: Path, base: Offset, found: list[str]) -> None:
    log = folder / names.file_name(base, names.LOG)
    swap = log.with_name(log.name + names.SWAP)
    end = _end_of(disk, swap)
    _events.info("swap.finished", path=str(log), end=end)
    for name in found:
        offset, suffix = names.parse_file_name(name) or (Offset(-1), "")
        if base < offset < end and suffix in (names.LOG, *names.INDEXES, names.KEY_INDEX):
            disk.unlink(folder / name)
    # Of the old segment, if of any.
    disk.unlink(folder / names.file_name(base, names.KEY_INDEX))
    for suffix in names.INDEXES:
        index = folder / names.file_name(base, suffix)
        if index.name + names.SWAP in found:
            disk.rename(index.with_name(index.name + names.SWAP), index)
    disk.sync_directory(folder)
    disk.rename(swap, log)
    disk.sync_directory(folder)


def _end_of(disk: Disk, path: Path) -> Offset:
    """Where a segment ends: its last batch is one that the old ones ended with."""
    file, end = disk.open(path), Offset(0)
    try:
        for step in walk(file, 0, file.size()):
            end = step.header.next_offset
    except BrokenBatchError as broken:
        _events.error("segment.damaged", path=str(path), found=str(broken))
    return end
