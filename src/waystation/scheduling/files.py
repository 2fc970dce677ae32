"""What the index asks of a disk: a folder of its own, handed in.

``storage/schedule_files.py`` puts it on a disk, real or simulated.  The names are few and short;
what they promise is what ``storage/disk.py`` does: synced data survives a crash, and so does a name
once ``sync`` has returned.
"""

from typing import Protocol

from waystation.records.record import Buffer

__all__ = ["IndexFile", "IndexFiles"]


class IndexFile(Protocol):
    """An open file; stays readable after its name is gone."""

    def pread(self, nbytes: int, position: int) -> bytes:
        """Up to ``nbytes`` from ``position``; fewer only at the end."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of ``data`` at ``position``."""
        ...

    def datasync(self) -> None:
        """Return once what was written survives a crash."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class IndexFiles(Protocol):
    """The folder."""

    def names(self) -> list[str]:
        """Everything in it."""
        ...

    def create(self, name: str) -> IndexFile:
        """A new file, empty."""
        ...

    def open(self, name: str) -> IndexFile:
        """One that is there; ``FileNotFoundError`` otherwise."""
        ...

    def read(self, name: str) -> bytes:
        """A whole file; ``FileNotFoundError`` if there is none."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Let the file hold ``data``, or after a crash what it held before; durable."""
        ...

    def remove(self, name: str) -> None:
        """Let the name go; no error if it is gone."""
        ...

    def sync(self) -> None:
        """Return once the names survive a crash."""
        ...
