"""A folder beside a partition's segments, for the index of what is scheduled there.

What ``scheduling/files.py`` asks for, on whatever disk the partition is on.
"""

from pathlib import Path

from waystation.storage.disk import Disk, DiskFile

__all__ = ["ScheduleFiles"]


class ScheduleFiles:
    """One folder; it is made when it is first asked for."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk, self._path = disk, path
        disk.make_directory(path)
        disk.sync_directory(path.parent)

    def names(self) -> list[str]:
        """As the port says."""
        return [entry.name for entry in self._disk.entries(self._path) if not entry.is_directory]

    def create(self, name: str) -> DiskFile:
        """As the port says: what a file of that name held before is gone."""
        file = self._disk.open(self._path / name, create=True)
        if file.size():
            file.truncate(0)
        return file

    def open(self, name: str) -> DiskFile:
        """As the port says."""
        return self._disk.open(self._path / name)

    def read(self, name: str) -> bytes:
        """As the port says."""
        return self._disk.read(self._path / name)

    def replace(self, name: str, data: bytes) -> None:
        """As the port says."""
        self._disk.replace(self._path / name, data)

    def remove(self, name: str) -> None:
        """As the port says."""
        self._disk.unlink(self._path / name)

    def sync(self) -> None:
        """As the port says."""
        self._disk.sync_directory(self._path)
