"""Where a table lies: a folder of this machine, or a place in an object store.

Local folders are used through pyarrow, everything else through deltalake's object store with
the ``storage.*`` options handed on.  A location is a value: tasks get it pickled.
"""

import errno
import os
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pa_fs

__all__ = ["Location"]


class Location(NamedTuple):
    """The root of one table."""

    path: str
    storage: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, path: str, storage: tuple[tuple[str, str], ...] = ()) -> "Location":
        """Relative paths count from here, so that executors elsewhere find the same folder."""
        if path.startswith("file:"):
            path = unquote(urlsplit(path).path)
        if "://" in path:
            return cls(path.rstrip("/"), storage)
        return cls(str(Path(path).expanduser().absolute()), storage)

    @property
    def local(self) -> bool:
        """Whether plain file operations reach it."""
        return "://" not in self.path

    @property
    def folder(self) -> Path:
        """The root as a path; only of local tables."""
        assert self.local, f"{self.path} is no folder of this machine"
        return Path(self.path)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """As deltalake wants them."""
        return dict(self.storage) or None

    def file_system(self) -> Any:
        """A file system whose paths count from the table's root."""
        if self.local:
            return pa_fs.SubTreeFileSystem(self.path, pa_fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        return pa_fs.PyFileSystem(DeltaStorageHandler(self.path, dict(self.storage)))

    def settle(self, *files: str) -> None:
        """Make local files, and that they are in their folders, survive a power failure."""
        if not self.local:
            return
        paths = [self.folder / file for file in files]
        for path in (*paths, *sorted({path.parent for path in paths})):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def check_writable(self) -> None:
        """An error of the operating system if files cannot be made in a local table."""
        if self.local and not os.access(self.path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.path)

    def discard(self, files: list[str]) -> None:
        """Remove files that no commit names; those that are gone already are fine."""
        if self.local:
            for file in files:
                (self.folder / file).unlink(missing_ok=True)
            return
        system = self.file_system()
        for file in files:
            try:
                system.delete_file(file)
            except OSError:
                continue  # an orphan costs room only, and vacuum finds it
