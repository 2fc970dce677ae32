"""``waystation serve`` on a real disk whose faults are files that a test makes and removes.

Beside a data directory ``d``, a file ``d.quota`` holds how many bytes may be in it: writing more
fails as on a full disk.  While ``d.broken`` is there, every write and sync in ``d`` fails.
Works for every user on every machine, where mounting a small file system may not.
"""

import argparse
import errno
import os
import sys
from pathlib import Path

from waystation.node.run import run
from waystation.node.settings import load
from waystation.storage.disk import Buffer, DiskFile, RealDisk, RealFile


class FaultyFile(RealFile):
    """A file that asks its disk's faults before it grows or syncs."""

    __slots__ = ("_faults",)

    def __init__(self, path: Path, faults: "Faults", *, create: bool) -> None:
        self._faults = faults
        super().__init__(path, create=create)

    def pwrite(self, data: Buffer, position: int) -> None:
        self._faults.check_growth(position + len(data) - self.size())
        super().pwrite(data, position)

    def datasync(self) -> None:
        self._faults.check_broken()
        super().datasync()


class Faults:
    """What is wrong with one data directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._quota = root.with_name(root.name + ".quota")
        self._broken = root.with_name(root.name + ".broken")

    def check_broken(self) -> None:
        if self._broken.exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def check_growth(self, nbytes: int) -> None:
        self.check_broken()
        if nbytes > 0 and self._quota.exists() and nbytes > self.left_bytes():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def left_bytes(self, without_quota: int = 0) -> int:
        if not self._quota.exists():
            return without_quota
        # The store's files do not go through the disk.
        files = (one for one in self._root.rglob("*") if "cluster.sqlite" not in one.name)
        used = sum(os.lstat(one).st_size for one in files if one.is_file())
        return max(int(self._quota.read_text()) - used, 0)


class FaultyDisk(RealDisk):
    """The operating system's file systems, and the faults of those data directories."""

    __slots__ = ("_roots",)

    def __init__(self, roots: list[Path]) -> None:
        self._roots = roots

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        return FaultyFile(path, self._faults(path), create=create)

    def replace(self, path: Path, data: bytes, *, durable: bool = True) -> None:
        self._faults(path).check_growth(len(data))
        super().replace(path, data, durable=durable)

    def free_bytes(self, path: Path) -> int:
        free = super().free_bytes(path)
        return min(free, self._faults(path).left_bytes(free))

    def _faults(self, path: Path) -> Faults:
        return Faults(next(root for root in self._roots if path.is_relative_to(root)))


def main(arguments: list[str]) -> int:
    """Parse what ``BrokerProcess`` passes, and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--listen")
    parser.add_argument("--http")
    parser.add_argument("--data-dir", action="append", dest="dirs")
    parser.add_argument("--set", action="append", default=[], dest="pairs")
    given = parser.parse_args(arguments)
    options = dict(pair.split("=", 1) for pair in given.pairs)
    options |= {"listen": given.listen, "http": given.http, "log.dirs": ",".join(given.dirs)}
    return run(
        load([("command line", options)]),
        announce=lambda line: print(line, flush=True),  # noqa: T201, the one line of serve
        complain=lambda line: print(line, file=sys.stderr),  # noqa: T201
        disk=FaultyDisk([Path(one) for one in given.dirs]),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
