"""What recovery cuts off is kept beside the log, for whoever wants to look.

A ``.cut`` file is named by the offset at which the log was cut.  There are at most eight per log;
the lowest go first.  On a full disk the log matters more than its cuttings: they are not kept.
"""

from pathlib import Path

from waystation.storage import names
from waystation.storage.disk import Disk, DiskFile
from waystation.storage.segment import Segment
from waystation.storage.tickets import NO_SPACE
from waystation.telemetry.logs import get_logger

_KEPT_MAX = 8
_COPY_BYTES = 1 << 20
_events = get_logger("storage")


def keep_aside(disk: Disk, folder: Path, segment: Segment, size_bytes: int) -> str | None:
    """Copy what follows the end of ``segment``; the name of the copy, or ``None`` if none is.

    Zeros are not worth keeping: a length that reached the disk without its bytes.
    """
    name = names.file_name(segment.next_offset, names.CUT)
    try:
        if _copy(disk, folder / name, segment.file(), segment.size_bytes, size_bytes):
            _thin_out(disk, folder)
            return name
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        _events.warning("cut.not.kept", path=str(folder / name), reason="the disk is full")
    disk.unlink(folder / name)
    return None


def keep_segment_aside(disk: Disk, folder: Path, segment: Segment) -> None:
    """Rename a whole segment; its indexes go."""
    segment.release()
    name = names.file_name(segment.base_offset, names.CUT)
    disk.rename(segment.log.path, folder / name)
    for suffix in (*names.INDEXES, names.KEY_INDEX):
        disk.unlink(folder / names.file_name(segment.base_offset, suffix))
    _thin_out(disk, folder)


def _copy(disk: Disk, path: Path, source: DiskFile, start: int, end: int) -> bool:
    """Copy ``[start, end)``; whether there was anything but zeros."""
    copy, worth_it = disk.open(path, create=True), False
    copy.truncate(0)
    for position in range(start, end, _COPY_BYTES):
        piece = source.pread(min(_COPY_BYTES, end - position), position)
        worth_it = worth_it or any(piece)
        copy.pwrite(piece, position - start)
    copy.datasync()
    return worth_it


def _thin_out(disk: Disk, folder: Path) -> None:
    kept = [entry.name for entry in disk.entries(folder) if entry.name.endswith(names.CUT)]
    for name in sorted(kept)[:-_KEPT_MAX]:
        disk.unlink(folder / name)
