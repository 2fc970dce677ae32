"""What disks that forget make of smaller steps, each of which a crash may come after."""

from pathlib import Path

from waystation.storage.disk import Disk

__all__ = ["read_whole", "replace_by_rename"]


def read_whole(disk: Disk, path: Path) -> bytes:
    """``Disk.read``."""
    file = disk.open(path)
    return file.pread(file.size(), 0)


def replace_by_rename(disk: Disk, path: Path, data: bytes, *, durable: bool) -> None:
    """``Disk.replace``: a temporary file, then a rename."""
    temporary = path.with_name(path.name + ".tmp")
    file = disk.open(temporary, create=True)
    file.truncate(0)
    file.pwrite(data, 0)
    if durable:
        file.datasync()
    disk.rename(temporary, path)
    if durable:
        disk.sync_directory(path.parent)
