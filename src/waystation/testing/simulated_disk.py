"""A disk in memory that loses what was not synced, as its seed decides.

What a crash does to whatever was written and not synced:

- each page of 4 KB stays, goes, or stays in part, by sectors of 512 bytes;
- a file's new length stays or goes by itself: it may be there without the bytes, as zeros;
- a name that was made, moved or removed stays or goes: either a prefix of the changes is kept, as
  a journalling file system does, or any subset of them.

A sync that fails loses its pages for good, and the next one succeeds, as the kernel has it.
Power can be lost before any change, in the middle of whatever makes several.
"""

import errno
import random
from pathlib import Path
from typing import NamedTuple

from waystation.model.errors import StorageError
from waystation.records.header import Buffer
from waystation.storage.disk import DiskFile, Entry, Lock
from waystation.testing.disk_steps import read_whole, replace_by_rename

PAGE_BYTES = 4096
SECTOR_BYTES = 512


class PowerLossError(Exception):
    """The disk was told to lose power here; ``crash`` says what is left."""


class _Inode:
    """A file: what this life sees, and what the disk has for sure."""

    __slots__ = ("data", "dirty", "durable", "unreadable")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.dirty: dict[int, None] = {}
        self.unreadable = False

    def touch(self, start: int, end: int) -> None:
        for page in range(start // PAGE_BYTES, -(-end // PAGE_BYTES)):
            self.dirty[page] = None

    def sync(self) -> None:
        del self.durable[len(self.data) :]
        self.durable += bytes(len(self.data) - len(self.durable))
        for page in self.dirty:
            at = page * PAGE_BYTES
            self.durable[at : at + PAGE_BYTES] = self.data[at : at + PAGE_BYTES]
        self.dirty.clear()

    def crash(self, chance: random.Random) -> None:
        lengths = len(self.durable), len(self.data)
        size = chance.choice((*lengths, chance.randint(min(lengths), max(lengths))))
        after = self.durable[:size] + bytes(max(0, size - len(self.durable)))
        for page in self.dirty:
            for start in self._survivors(page, chance):
                end = min(start + SECTOR_BYTES, size, len(self.data))
                after[start:end] = self.data[start:end]
        self.data, self.durable = after, bytearray(after)
        self.dirty.clear()

    def _survivors(self, page: int, chance: random.Random) -> list[int]:
        sectors = [page * PAGE_BYTES + at for at in range(0, PAGE_BYTES, SECTOR_BYTES)]
        sectors = [start for start in sectors if start < len(self.data)]
        match chance.randrange(4):
            case 0:
                return []
            case 1:
                return sectors[: chance.randint(0, len(sectors))]
            case 2:
                return [start for start in sectors if chance.random() < 0.5]
            case _:
                return sectors


class _Set(NamedTuple):
    name: str
    node: "_Inode | _Directory"

    def apply(self, names: "dict[str, _Inode | _Directory]") -> None:
        names[self.name] = self.node


class _Removed(NamedTuple):
    name: str

    def apply(self, names: "dict[str, _Inode | _Directory]") -> None:
        names.pop(self.name, None)


class _Renamed(NamedTuple):
    name: str
    to: str

    def apply(self, names: "dict[str, _Inode | _Directory]") -> None:
        if self.name in names:
            names[self.to] = names.pop(self.name)


class _Directory:
    """Names: as this life sees them, and as the disk has them for sure."""

    __slots__ = ("changes", "durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}
        self.changes: list[_Set | _Removed | _Renamed] = []

    def change(self, change: _Set | _Removed | _Renamed) -> None:
        change.apply(self.names)
        self.changes.append(change)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changes.clear()

    def crash(self, chance: random.Random) -> None:
        for change in self._survivors(chance):
            change.apply(self.durable)
        self.names = dict(self.durable)
        self.changes.clear()
        for node in self.names.values():
            node.crash(chance)

    def _survivors(self, chance: random.Random) -> list[_Set | _Removed | _Renamed]:
        if chance.random() < 0.5:
            return self.changes[: chance.randint(0, len(self.changes))]
        return [change for change in self.changes if chance.random() < 0.5]


class SimulatedFile:
    """An open file of one life of the disk."""

    __slots__ = ("_disk", "_inode", "_life", "_sync_failed")

    def __init__(self, disk: "SimulatedDisk", inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._life = disk.life
        self._sync_failed = False

    def pread(self, nbytes: int, position: int) -> bytes:
        """As the port says."""
        self._check_alive()
        if self._inode.unreadable:
            raise OSError(errno.EIO, "a planted read error")
        return bytes(self._inode.data[position : position + nbytes])

    def pwrite(self, data: Buffer, position: int) -> None:
        """As the port says; a full disk takes what fits."""
        self._check_alive()
        self._disk.change()
        content, view = self._inode.data, memoryview(data).cast("B")
        fits = self._disk.take(position + len(view) - len(content))
        end = min(position + len(view), len(content) + fits)
        if len(content) < position:
            content += bytes(min(position, end) - len(content))
        content[position:end] = view[: max(end - position, 0)]
        self._inode.touch(position, end)
        if end < position + len(view):
            raise OSError(errno.ENOSPC, "No space left on device")

    def truncate(self, size_bytes: int) -> None:
        """As the port says."""
        self._check_alive()
        self._disk.change()
        content = self._inode.data
        before = len(content)
        self._disk.take(size_bytes - before)
        del content[size_bytes:]
        content += bytes(size_bytes - len(content))
        self._inode.touch(min(before, size_bytes), max(before, size_bytes))

    def datasync(self) -> None:
        """As the port says."""
        self._check_alive()
        self._disk.change()
        if self._sync_failed:
            raise OSError(errno.EIO, "an earlier sync of this file has failed")
        if self._disk.sync_fails():
            self._inode.dirty.clear()
            self._sync_failed = True
            raise OSError(errno.EIO, "a planted sync error")
        self._inode.sync()

    def start_writeback(self, position: int, nbytes: int) -> None:
        """A hint, which this disk does not take."""

    def size(self) -> int:
        """As the port says."""
        self._check_alive()
        return len(self._inode.data)

    def fileno(self) -> int | None:
        """None: there is no descriptor."""
        return None

    def close(self) -> None:
        """Nothing to close."""

    def _check_alive(self) -> None:
        assert self._life == self._disk.life, "a file of before the crash is used after it"


class _SimulatedLock:
    def __init__(self, disk: "SimulatedDisk", path: Path) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        self._disk.unlock(self._path)


class SimulatedDisk:
    """A file system in memory; the same seed and the same calls give the same crashes."""

    def __init__(self, seed: int = 0) -> None:
        self.life = 0
        self.syncs = 0
        self.space_bytes: int | None = None
        """What may still be written before the disk is full; ``None`` is no limit."""
        self._chance = random.Random(seed)
        self._root = _Directory()
        self._fail_sync_at = -1
        self._changes_left = -1
        self._locks: dict[Path, None] = {}

    # --- faults -------------------------------------------------------------------------

    def crash(self) -> None:
        """Lose power and come back; files opened before may not be used any more."""
        self.life += 1
        self._fail_sync_at = -1
        self._changes_left = -1
        self._locks.clear()
        self._root.crash(self._chance)

    def fail_sync(self, after: int = 0) -> None:
        """Let the sync fail that comes after ``after`` more."""
        self._fail_sync_at = self.syncs + after

    def lose_power(self, after: int) -> None:
        """Raise ``PowerLossError`` instead of the change that comes after ``after`` more."""
        self._changes_left = after

    def change(self) -> None:
        """A change is about to be made; called by everything that changes anything."""
        if self._changes_left == 0:
            raise PowerLossError
        self._changes_left -= 1

    def fail_reads(self, path: Path) -> None:
        """Let every read of a file fail."""
        node = self._find(path)
        assert isinstance(node, _Inode), f"{path} is no file"
        node.unreadable = True

    def sync_fails(self) -> bool:
        """Count a sync; whether it is the one to fail."""
        self.syncs += 1
        return self.syncs - 1 == self._fail_sync_at

    def take(self, nbytes: int) -> int:
        """Use up space, as much as there is of ``nbytes``; give back if it is negative."""
        if self.space_bytes is None:
            return max(nbytes, 0)
        fits = min(nbytes, self.space_bytes)
        self.space_bytes -= fits
        return max(fits, 0)

    # --- the port -----------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        """As the port says."""
        directory = self._directory(path.parent)
        node = directory.names.get(path.name)
        if node is None and create:
            node = _Inode()
            self.change()
            directory.change(_Set(path.name, node))
        if not isinstance(node, _Inode):
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        return SimulatedFile(self, node)

    def read(self, path: Path) -> bytes:
        """As the port says."""
        return read_whole(self, path)

    def replace(self, path: Path, data: bytes, *, durable: bool = True) -> None:
        """As the port says."""
        replace_by_rename(self, path, data, durable=durable)

    def entries(self, path: Path) -> list[Entry]:
        """As the port says."""
        return sorted(
            Entry(name, True, 0)
            if isinstance(node, _Directory)
            else Entry(name, False, len(node.data))
            for name, node in self._directory(path).names.items()
        )

    def make_directory(self, path: Path) -> None:
        """As the port says."""
        directory = self._root
        for part in path.parts[1:]:
            node = directory.names.get(part)
            if node is None:
                node = _Directory()
                self.change()
                directory.change(_Set(part, node))
            assert isinstance(node, _Directory), f"{part} of {path} is a file"
            directory = node

    def rename(self, path: Path, to: Path) -> None:
        """As the port says; both names in one directory."""
        assert path.parent == to.parent, f"{path} renamed to {to}"
        directory = self._directory(path.parent)
        if path.name not in directory.names:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        self.change()
        directory.change(_Renamed(path.name, to.name))

    def unlink(self, path: Path) -> None:
        """As the port says."""
        directory = self._directory(path.parent)
        node = directory.names.get(path.name)
        if isinstance(node, _Inode):
            self.change()
            self.take(-len(node.data))
            directory.change(_Removed(path.name))

    def remove_tree(self, path: Path) -> None:
        """As the port says."""
        self.change()
        self._directory(path.parent).change(_Removed(path.name))

    def sync_directory(self, path: Path) -> None:
        """As the port says."""
        self.change()
        if self.sync_fails():
            raise OSError(errno.EIO, "a planted sync error")
        self._directory(path).sync()

    def free_bytes(self, path: Path) -> int:
        """As the port says."""
        return 1 << 40 if self.space_bytes is None else self.space_bytes

    def total_bytes(self, path: Path) -> int:
        """As the port says."""
        return 1 << 40

    def lock(self, path: Path) -> Lock:
        """As the port says; within this process."""
        if path in self._locks:
            raise StorageError(f"{path.parent} is in use")
        self._locks[path] = None
        return _SimulatedLock(self, path)

    def unlock(self, path: Path) -> None:
        """Called by a lock that is released."""
        self._locks.pop(path, None)

    def _directory(self, path: Path) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, "No such directory", str(path))
        return node

    def _find(self, path: Path) -> "_Inode | _Directory | None":
        node: _Inode | _Directory | None = self._root
        for part in path.parts[1:]:
            if not isinstance(node, _Directory):
                return None
            node = node.names.get(part)
        return node
