"""A bound on the files that are open at once.

Segments are many and descriptors are few.  A handle opens its file when asked and keeps it;
when too many are open, those not asked for lately are let go of.  Two promises:

1. a file with writes that are not synced is never let go of: a sync error must reach the
   descriptor that wrote;
2. letting go closes nothing that a reader still holds.
"""

from collections import deque
from pathlib import Path

from waystation.storage.disk import Disk, DiskFile


class FileHandle:
    """A file that is opened when it is first needed."""

    __slots__ = ("_file", "_open_files", "create", "folder", "name", "pinned", "recent")

    def __init__(self, open_files: "OpenFiles", folder: Path, name: str) -> None:
        self._open_files = open_files
        self._file: DiskFile | None = None
        self.folder = folder
        self.name = name
        self.create = False
        self.pinned = False
        self.recent = False

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.folder / self.name

    def file(self) -> DiskFile:
        """The open file.  HOT: once per append and per read."""
        self.recent = True
        return self._file or self.open()

    def open(self) -> DiskFile:
        """Open the file; if ``create`` is set it need not exist, and is emptied if it does."""
        self._file = file = self._open_files.disk.open(self.path, create=self.create)
        if self.create:
            file.truncate(0)
            self.create = False
        self._open_files.note(self)
        return file

    @property
    def is_open(self) -> bool:
        """Whether a descriptor is held."""
        return self._file is not None

    def release(self) -> None:
        """Let go of the file; readers that hold it may go on."""
        self._file = None


class OpenFiles:
    """The open files of one data directory."""

    __slots__ = ("_handles", "disk", "limit")

    def __init__(self, disk: Disk, limit: int) -> None:
        self.disk = disk
        self.limit = limit
        self._handles: deque[FileHandle] = deque()

    def __len__(self) -> int:
        return sum(handle.is_open for handle in self._handles)

    def note(self, handle: FileHandle) -> None:
        """``handle`` was opened: let go of others if they are too many.

        A second chance for whoever was asked for since the last look, as a clock page cache
        gives.  Pinned files stay, even past the limit.
        """
        self._handles.append(handle)
        for _ in range(2 * len(self._handles)):
            if len(self._handles) <= self.limit:
                return
            oldest = self._handles.popleft()
            if oldest.is_open and (oldest is handle or oldest.pinned or oldest.recent):
                oldest.recent = False
                self._handles.append(oldest)
            else:
                oldest.release()
