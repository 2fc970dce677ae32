"""The real file system, of which a killed process leaves only what it had synced.

A page cache outlives its process, so ``kill -9`` proves little about syncing.  Here writes stay in
this process until ``datasync`` passes them on, and new names, renames and removals until
``sync_directory`` does.  Directories are renamed and removed at once: that errs on the side of
losing more.
"""

import errno
from pathlib import Path
from threading import RLock
from typing import NamedTuple

from waystation.records.header import Buffer
from waystation.storage.disk import DiskFile, Entry, Lock, RealDisk
from waystation.testing.disk_steps import read_whole, replace_by_rename

_PAGE_BYTES = 4096


class _Inode:
    """A file's content: what the real file has, under pages that only this process has."""

    __slots__ = ("pages", "real", "saved", "size")

    def __init__(self, real: DiskFile | None) -> None:
        self.real = real
        self.size = 0 if real is None else real.size()
        self.pages: dict[int, bytearray] = {}
        self.saved = b""

    def page(self, number: int) -> bytes | bytearray:
        """A whole page, padded with zeros past the end."""
        known = self.pages.get(number)
        if known is not None:
            return known
        at = number * _PAGE_BYTES
        if self.real is None:
            stored = self.saved[at : at + _PAGE_BYTES]
        else:
            stored = self.real.pread(_PAGE_BYTES, at)
        return stored.ljust(_PAGE_BYTES, b"\0")

    def read(self, nbytes: int, position: int) -> bytes:
        end = min(position + nbytes, self.size)
        if position >= end:
            return b""
        first, last = position // _PAGE_BYTES, (end - 1) // _PAGE_BYTES
        pages = b"".join(self.page(number) for number in range(first, last + 1))
        return pages[position - first * _PAGE_BYTES : end - first * _PAGE_BYTES]

    def write(self, data: Buffer, position: int) -> None:
        view, done = memoryview(data).cast("B"), 0
        while done < len(view):
            number, at = divmod(position + done, _PAGE_BYTES)
            count = min(_PAGE_BYTES - at, len(view) - done)
            self._own(number)[at : at + count] = view[done : done + count]
            done += count
        self.size = max(self.size, position + len(view))

    def truncate(self, size: int) -> None:
        kept, at = divmod(size, _PAGE_BYTES)
        if size < self.size:
            for number in range(kept + 1, -(-self.size // _PAGE_BYTES)):
                self.pages[number] = bytearray(_PAGE_BYTES)
            self._own(kept)[at:] = bytes(_PAGE_BYTES - at)
        self.size = size

    def sync(self) -> None:
        """Pass on what is only here, in the order of the file."""
        if self.real is None:
            self.saved = self.read(self.size, 0)
        else:
            for number in sorted(self.pages):
                at = number * _PAGE_BYTES
                if at < self.size:
                    self.real.pwrite(self.pages[number][: self.size - at], at)
            self.real.truncate(self.size)
        self.pages.clear()

    def link(self, real: DiskFile) -> None:
        """The file's name is durable now: what was synced so far goes to a real file."""
        real.truncate(0)
        real.pwrite(self.saved, 0)
        self.real, self.saved = real, b""

    def _own(self, number: int) -> bytearray:
        if number not in self.pages:
            self.pages[number] = bytearray(self.page(number))
        return self.pages[number]


class VolatileFile:
    """An open file; several may share one content."""

    __slots__ = ("_inode", "_lock")

    def __init__(self, inode: _Inode, lock: "RLock") -> None:
        self._inode = inode
        self._lock = lock

    def pread(self, nbytes: int, position: int) -> bytes:
        """As the port says."""
        with self._lock:
            return self._inode.read(nbytes, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        """As the port says."""
        with self._lock:
            self._inode.write(data, position)

    def truncate(self, size_bytes: int) -> None:
        """As the port says."""
        with self._lock:
            self._inode.truncate(size_bytes)

    def datasync(self) -> None:
        """As the port says, as far as a killed process goes."""
        with self._lock:
            self._inode.sync()

    def start_writeback(self, position: int, nbytes: int) -> None:
        """A hint, which this disk does not take."""

    def size(self) -> int:
        """As the port says."""
        return self._inode.size

    def fileno(self) -> int | None:
        """None: what is in this process cannot be sent from a descriptor."""
        return None

    def close(self) -> None:
        """Nothing to close."""


class _Linked(NamedTuple):
    name: str
    inode: _Inode


class _Removed(NamedTuple):
    name: str


class _Renamed(NamedTuple):
    name: str
    to: str


class _Made(NamedTuple):
    name: str


_Change = _Linked | _Removed | _Renamed | _Made


class VolatileDisk:
    """Give it to a node in place of ``RealDisk``; any number of threads may use it."""

    def __init__(self) -> None:
        self._real = RealDisk()
        self._lock = RLock()
        self._inodes: dict[Path, _Inode | None] = {}
        """Files that were opened, or ``None`` for those that were removed."""
        self._unmade: set[Path] = set()
        """Directories that the real file system does not have yet."""
        self._changes: dict[Path, list[_Change]] = {}
        """By directory, what ``sync_directory`` has to pass on."""
        self._synced: dict[Path, list[_Change]] = {}
        """The same for unmade directories that were synced before their own name was."""

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        """As the port says."""
        with self._lock:
            inode = self._inode(path)
            if inode is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
                inode = self._inodes[path] = _Inode(None)
                self._change(path.parent, _Linked(path.name, inode))
            return VolatileFile(inode, self._lock)

    def read(self, path: Path) -> bytes:
        """As the port says."""
        return read_whole(self, path)

    def replace(self, path: Path, data: bytes, *, durable: bool = True) -> None:
        """As the port says."""
        replace_by_rename(self, path, data, durable=durable)

    def entries(self, path: Path) -> list[Entry]:
        """As the port says."""
        with self._lock:
            found = {} if path in self._unmade else {e.name: e for e in self._real.entries(path)}
            for known, inode in self._inodes.items():
                if known.parent == path:
                    found.pop(known.name, None)
                    if inode is not None:
                        found[known.name] = Entry(known.name, False, inode.size)
            for made in self._unmade:
                if made.parent == path:
                    found[made.name] = Entry(made.name, True, 0)
            return sorted(found.values())

    def make_directory(self, path: Path) -> None:
        """As the port says."""
        with self._lock:
            if path in self._unmade or path.is_dir():
                return
            self.make_directory(path.parent)
            self._unmade.add(path)
            self._change(path.parent, _Made(path.name))

    def rename(self, path: Path, to: Path) -> None:
        """As the port says; both names in one directory."""
        with self._lock:
            assert path.parent == to.parent, f"{path} renamed to {to}"
            if path in self._unmade or path.is_dir():
                self._rename_directory(path, to)
                return
            inode = self._inode(path)
            if inode is None:
                raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
            self._inodes[to], self._inodes[path] = inode, None
            self._change(path.parent, _Renamed(path.name, to.name))

    def unlink(self, path: Path) -> None:
        """As the port says."""
        with self._lock:
            if self._inode(path) is not None:
                self._inodes[path] = None
                self._change(path.parent, _Removed(path.name))

    def remove_tree(self, path: Path) -> None:
        """As the port says."""
        with self._lock:
            self._forget_below(path)
            if path not in self._unmade:
                self._real.remove_tree(path)
            self._unmade.discard(path)

    def sync_directory(self, path: Path) -> None:
        """As the port says, as far as a killed process goes."""
        with self._lock:
            changes = self._changes.pop(path, [])
            if path in self._unmade:
                self._synced.setdefault(path, []).extend(changes)
            else:
                self._apply(path, changes)

    def free_bytes(self, path: Path) -> int:
        """As the port says."""
        return self._real.free_bytes(self._made(path))

    def total_bytes(self, path: Path) -> int:
        """As the port says."""
        return self._real.total_bytes(self._made(path))

    def lock(self, path: Path) -> Lock:
        """A real lock in a real directory: another process must see it."""
        with self._lock:
            self._make_now(path.parent)
        return self._real.lock(path)

    def _inode(self, path: Path) -> _Inode | None:
        if path not in self._inodes:
            if path.parent in self._unmade or not path.is_file():
                return None
            self._inodes[path] = _Inode(self._real.open(path))
        return self._inodes[path]

    def _change(self, directory: Path, change: _Change) -> None:
        if directory not in self._unmade and not directory.is_dir():
            raise FileNotFoundError(errno.ENOENT, "No such directory", str(directory))
        self._changes.setdefault(directory, []).append(change)

    def _apply(self, directory: Path, changes: list[_Change]) -> None:
        for change in changes:
            path = directory / change.name
            match change:
                case _Linked(_, inode):
                    inode.link(self._real.open(path, create=True))
                case _Removed():
                    self._real.unlink(path)
                case _Renamed(_, to):
                    self._real.rename(path, directory / to)
                case _Made():
                    if path in self._unmade:
                        self._make_now(path)

    def _make_now(self, directory: Path) -> None:
        self._real.make_directory(directory)
        for made in (directory, *directory.parents):
            self._unmade.discard(made)
        self._apply(directory, self._synced.pop(directory, []))

    def _rename_directory(self, path: Path, to: Path) -> None:
        if path in self._unmade:
            self._make_now(path)
        self._forget_below(path)
        self._real.rename(path, to)

    def _forget_below(self, path: Path) -> None:
        for known in [one for one in self._inodes if path in one.parents]:
            del self._inodes[known]
        for known in (path, *[one for one in self._changes if path in one.parents]):
            self._changes.pop(known, None)
            self._synced.pop(known, None)

    def _made(self, path: Path) -> Path:
        return next(one for one in (path, *path.parents) if one.is_dir())
