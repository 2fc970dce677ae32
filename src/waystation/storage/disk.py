"""The operating system's files, behind a port that a simulated disk can stand in for.

``Disk`` is what storage needs of a file system, ``DiskFile`` of an open file.  Three things are
promised of both and nothing else:

1. what was written is read back by this process;
2. what was synced survives a crash, and a name does once its directory was synced;
3. after a sync has failed, every later sync of that open file fails too: the kernel reports a
   lost page once, and whoever asks second must not be told that all is well.

Simulated disks that forget and tear live in ``waystation.testing.disk``.
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock as ThreadLock
from typing import NamedTuple, Protocol

from waystation.model.errors import StorageError
from waystation.records.header import Buffer

_SYNC_FILE_RANGE_WRITE = 2


class Entry(NamedTuple):
    """One name in a directory."""

    name: str
    is_directory: bool
    size_bytes: int


class DiskFile(Protocol):
    """An open file; it closes when nobody refers to it any more."""

    def pread(self, nbytes: int, position: int) -> bytes:
        """Up to ``nbytes`` from ``position``; fewer only at the end."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of ``data`` at ``position``; after an error some of it may be there."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Cut or extend the file."""
        ...

    def datasync(self) -> None:
        """Return once everything written so far survives a crash.  Any thread."""
        ...

    def start_writeback(self, position: int, nbytes: int) -> None:
        """Let the disk begin to write; a hint, for large logs that are synced late."""
        ...

    def size(self) -> int:
        """The file's length."""
        ...

    def fileno(self) -> int | None:
        """A descriptor for ``sendfile``, where there is one."""
        ...

    def close(self) -> None:
        """Close now instead of when it is forgotten."""
        ...


class Disk(Protocol):
    """What storage asks of a file system."""

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        """Open for reading and writing; without ``create`` it must exist."""
        ...

    def read(self, path: Path) -> bytes:
        """A whole small file; ``FileNotFoundError`` if it is not there."""
        ...

    def replace(self, path: Path, data: bytes, *, durable: bool = True) -> None:
        """Let ``path`` hold ``data``, or after a crash what it held before, never a mixture."""
        ...

    def entries(self, path: Path) -> list[Entry]:
        """What a directory holds, sorted by name."""
        ...

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it; no error if it is there."""
        ...

    def rename(self, path: Path, to: Path) -> None:
        """Give a file or directory another name, replacing a file of that name."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a file; no error if it is gone."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and all in it; no error if it is gone."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Return once the names in a directory survive a crash."""
        ...

    def free_bytes(self, path: Path) -> int:
        """What may still be written to the file system of ``path``."""
        ...

    def total_bytes(self, path: Path) -> int:
        """The size of the file system of ``path``."""
        ...

    def lock(self, path: Path) -> "Lock":
        """Hold ``path`` against every other process, or say who does."""
        ...


class Lock(Protocol):
    """A lock that is held until it is released or its process ends."""

    def release(self) -> None:
        """Let others have it."""
        ...


class RealFile:
    """A file descriptor."""

    __slots__ = ("__weakref__", "_descriptor", "_sync_failed", "_sync_lock")

    def __init__(self, path: Path, *, create: bool) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._descriptor = -1
        self._descriptor = os.open(path, flags, 0o644)
        self._sync_failed = False
        self._sync_lock = ThreadLock()

    def pread(self, nbytes: int, position: int) -> bytes:
        """As the port says."""
        return os.pread(self._descriptor, nbytes, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        """HOT: once per append; the kernel nearly always takes all of it at once."""
        done = os.pwrite(self._descriptor, data, position)
        while done < len(data):
            done += os.pwrite(self._descriptor, memoryview(data)[done:], position + done)

    def truncate(self, size_bytes: int) -> None:
        """As the port says."""
        os.ftruncate(self._descriptor, size_bytes)

    def datasync(self) -> None:
        """HOT: once per group commit.  The lock keeps two syncs from sharing one error."""
        with self._sync_lock:
            if self._sync_failed:
                raise OSError(errno.EIO, "an earlier sync of this file has failed")
            try:
                _datasync(self._descriptor)
            except OSError as error:
                self._sync_failed = True
                raise _sync_lost(error) from error

    def start_writeback(self, position: int, nbytes: int) -> None:
        """``sync_file_range`` where the C library has it."""
        _start_writeback(self._descriptor, position, nbytes)

    def size(self) -> int:
        """As the port says."""
        return os.fstat(self._descriptor).st_size

    def fileno(self) -> int | None:
        """The descriptor."""
        return self._descriptor

    def close(self) -> None:
        """As the port says; closing twice is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


class RealDisk:
    """The operating system's file systems."""

    __slots__ = ()

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        """As the port says."""
        return RealFile(path, create=create)

    def read(self, path: Path) -> bytes:
        """As the port says."""
        return path.read_bytes()

    def replace(self, path: Path, data: bytes, *, durable: bool = True) -> None:
        """Through a temporary file and a rename."""
        temporary = path.with_name(path.name + ".tmp")
        with temporary.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            self.sync_directory(path.parent)

    def entries(self, path: Path) -> list[Entry]:
        """As the port says."""
        with os.scandir(path) as found:
            return sorted(_entries(found))

    def make_directory(self, path: Path) -> None:
        """As the port says."""
        path.mkdir(parents=True, exist_ok=True)

    def rename(self, path: Path, to: Path) -> None:
        """As the port says."""
        path.replace(to)

    def unlink(self, path: Path) -> None:
        """As the port says."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """As the port says."""
        shutil.rmtree(path, ignore_errors=True)

    def sync_directory(self, path: Path) -> None:
        """As the port says."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise _sync_lost(error) from error
        finally:
            os.close(descriptor)

    def free_bytes(self, path: Path) -> int:
        """As the port says."""
        return shutil.disk_usage(path).free

    def total_bytes(self, path: Path) -> int:
        """As the port says."""
        return shutil.disk_usage(path).total

    def lock(self, path: Path) -> Lock:
        """An advisory lock on a file that names its holder."""
        return FileLock(path)


class FileLock:
    """``flock`` on a file; the kernel lets go of it when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise StorageError(
                f"{path.parent} is in use by another process (pid {holder}): stop it, or give "
                "this one another --data-dir"
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """As the port says."""
        self._file.close()


def _entries(found: Iterator[os.DirEntry[str]]) -> Iterator[Entry]:
    for one in found:
        directory = one.is_dir(follow_symlinks=False)
        yield Entry(one.name, directory, 0 if directory else one.stat().st_size)


def _sync_lost(error: OSError) -> OSError:
    """A sync may fail for want of space too, and has lost pages all the same."""
    return OSError(errno.EIO, f"the sync failed: {error.strerror}")


_datasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
_sync_file_range: "Callable[[int, int, int, int], int] | None" = None
_sync_file_range_sought = False


def _start_writeback(descriptor: int, position: int, nbytes: int) -> None:
    """The standard library lacks the call; ctypes, 2 MB of memory, comes with its first use."""
    global _sync_file_range, _sync_file_range_sought
    if not _sync_file_range_sought:
        _sync_file_range = _find_sync_file_range()
        _sync_file_range_sought = True
    if _sync_file_range is not None:
        _sync_file_range(descriptor, position, nbytes, _SYNC_FILE_RANGE_WRITE)


def _find_sync_file_range() -> "Callable[[int, int, int, int], int] | None":
    import ctypes

    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    found: Callable[[int, int, int, int], int] = function
    return found
