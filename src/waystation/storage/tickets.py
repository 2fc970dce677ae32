"""What a thread does for a log, so that the loop need not wait for the disk.

A ticket is made on the loop's thread, carried out by ``sync`` on any, and handed back to the log on
the loop's.  It holds the open files themselves: whatever happens to the log meanwhile, the right
ones are synced.
"""

import errno
from pathlib import Path
from typing import NamedTuple, Protocol

from waystation.model.offsets import Offset
from waystation.storage import names
from waystation.storage.disk import Disk
from waystation.storage.once_files import OnceChunk, OnceFiles
from waystation.storage.segment import Segment

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A disk that is full refuses, but has lost nothing: it may be tried again."""

NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
"""A file could not be opened, so nothing was done to it."""


class Growing(Protocol):
    """The log, as far as a flush looks at it from its thread."""

    log_end: Offset
    active: Segment


class FlushTicket:
    """After ``sync`` everything before ``end`` survives a crash.

    What is appended while the ticket waits for a thread is covered too.  That is most of the
    group commit when there are more busy logs than threads.
    """

    __slots__ = ("_disk", "_files", "_folder", "_log", "cuts", "end", "segments")

    def __init__(
        self, log: Growing, disk: Disk, folder: Path | None, segments: list[Segment], cuts: int
    ) -> None:
        """``folder`` is given if it has new names to be synced."""
        self._log = log
        self._disk = disk
        self._folder = folder
        self._files = [segment.file() for segment in segments]
        self.segments = segments
        self.end = log.log_end
        self.cuts = cuts

    def sync(self) -> None:
        """HOT: once per group commit; usually one file."""
        # The end is read before the segment: as long as that is active, it holds all before it.
        end = self._log.log_end
        if self._log.active is self.segments[-1]:
            self.end = end
        for file in self._files:
            file.datasync()
        if self._folder is not None:
            self._disk.sync_directory(self._folder)


class Snapshot(NamedTuple):
    """The producers as of an offset, encoded."""

    offset: Offset
    content: bytes


class Unsaved:
    """What the next checkpoint of a log has to write, besides batches and their indexes."""

    __slots__ = ("epochs_changed", "new_names", "snapshots")

    def __init__(self, epochs_changed: bool) -> None:
        self.epochs_changed = epochs_changed
        self.new_names = True
        """Whether a file was made since the last one."""
        self.snapshots: list[Snapshot] = []
        """One for each segment that was begun since."""


class CheckpointTicket:
    """After ``sync`` recovery need not look at anything before ``end``.

    The order matters: a snapshot is proof that everything before it was synced, the log as
    well as its indexes, idempotency keys and their names, so it comes last.
    """

    __slots__ = (
        "_disk",
        "_files",
        "_folder",
        "_once",
        "_once_files",
        "cuts",
        "end",
        "epochs",
        "indexes",
        "new_names",
        "snapshots",
    )

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        segments: list[Segment],
        snapshots: list[Snapshot],
        *,
        epochs: bytes | None,
        new_names: bool,
        cuts: int,
        once: OnceChunk,
        once_files: OnceFiles,
    ) -> None:
        """``new_names`` is true if a file was made since the last checkpoint."""
        self._disk = disk
        self._folder = folder
        self._files = [segment.file() for segment in segments if segment.size_bytes]
        self.indexes = [sync for segment in segments for sync in segment.begin_index_syncs()]
        self.snapshots = snapshots
        self.epochs = epochs
        self.new_names = new_names
        self._once, self._once_files = once, once_files
        self.end = snapshots[-1].offset
        self.cuts = cuts

    def sync(self) -> None:
        """Raises ``OSError``; one of ``NO_SPACE`` has harmed nothing."""
        for file in (*self._files, *(sync.file for sync in self.indexes)):
            file.datasync()
        if self.epochs is not None:
            path = self._folder / names.LEADER_EPOCHS
            temporary = path.with_name(path.name + names.TEMPORARY)
            self._write(temporary, self.epochs)
            self._disk.rename(temporary, path)
        if self.new_names or self.epochs is not None:
            self._disk.sync_directory(self._folder)
        self._once_files.write(self._once)
        for snapshot in self.snapshots:
            name = names.file_name(snapshot.offset, names.SNAPSHOT)
            self._write(self._folder / name, snapshot.content)
        self._disk.sync_directory(self._folder)

    def _write(self, path: Path, content: bytes) -> None:
        file = self._disk.open(path, create=True)
        file.truncate(0)
        file.pwrite(content, 0)
        file.datasync()
