"""Brings what only the journal holds back into the logs, after a crash.

Entries are taken in the order they were written, up to the first of each file that is not
whole.  One that its log holds already is passed over, so replaying twice changes nothing; so is
one of a tail that was cut off its log (``journal_voids.py``).  When
all is in the logs and synced, also at a clean shutdown, the journal is emptied: its large files
are kept to be used again, with nothing at their beginning.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c

from waystation.model.errors import CorruptBatchError
from waystation.model.ids import TopicId
from waystation.model.offsets import Millis
from waystation.records.header import check
from waystation.storage.disk import Disk, DiskFile
from waystation.storage.journal import FILE_BYTES, HEADER, TAIL, number_of
from waystation.storage.journal_voids import FILE as VOIDS
from waystation.storage.journal_voids import Place, Void, read_voids
from waystation.storage.log import Log
from waystation.telemetry.logs import get_logger

_events = get_logger("storage")
_NOTHING: Final = bytes(HEADER.size)


class Entry(NamedTuple):
    """One batch of one partition."""

    place: Place
    topic_id: TopicId
    partition: int
    batch: memoryview


def replay(disk: Disk, folder: Path, logs: Iterable[Log], now: Millis) -> int:
    """Append what the logs lack, sync it, and empty the journal; how many batches."""
    disk.make_directory(folder)
    paths = _paths(disk, folder)
    voids = read_voids(disk, folder)
    by_partition = {(log.topic_id, log.name.partition): log for log in logs}
    files = [entries for path in paths if (entries := list(_entries(disk, path)))]
    files.sort(key=lambda entries: entries[0].place)
    replayed = sum(
        _append(by_partition, entry, voids.get((entry.topic_id, entry.partition), ()), now)
        for entries in files
        for entry in entries
    )
    if replayed:
        _events.info("journal.replayed", batches=replayed)
        for log in by_partition.values():
            ticket = log.begin_flush()
            if ticket is not None:
                ticket.sync()
                log.finish_flush(ticket)
    empty(disk, folder)
    return replayed


def empty(disk: Disk, folder: Path) -> None:
    """Leave nothing to replay; only when everything is in the logs and synced."""
    for path in _paths(disk, folder):
        file = disk.open(path)
        if file.size() < FILE_BYTES:
            disk.unlink(path)
        elif not _is_empty(file):
            file.pwrite(_NOTHING, 0)
            file.datasync()
    disk.sync_directory(folder)
    if any(entry.name == VOIDS for entry in disk.entries(folder)):
        # Last: what they speak of must be gone for good before they go.
        disk.unlink(folder / VOIDS)
        disk.sync_directory(folder)


def _paths(disk: Disk, folder: Path) -> list[Path]:
    names = [entry.name for entry in disk.entries(folder)]
    return [folder / name for name in names if number_of(name) is not None]


def _is_empty(file: DiskFile) -> bool:
    return file.pread(len(_NOTHING), 0) == _NOTHING


def _entries(disk: Disk, path: Path) -> Iterator[Entry]:
    """Files with nothing at their beginning are large: not read any further."""
    file = disk.open(path)
    return iter(()) if _is_empty(file) else entries_of(file.pread(file.size(), 0))


def entries_of(data: bytes) -> Iterator[Entry]:
    """The whole entries at the start of a file, all of one generation."""
    view, at, generation = memoryview(data), 0, None
    while at + HEADER.size + TAIL.size <= len(view):
        nbytes, checksum = HEADER.unpack_from(view, at)
        begin = at + HEADER.size
        end = begin + TAIL.size + nbytes
        if nbytes == 0 or end > len(view):
            return
        found, topic_id, partition = TAIL.unpack_from(view, begin)
        batch = view[begin + TAIL.size : end]
        whole = crc32c(batch, crc32c(view[begin : begin + TAIL.size])) == checksum
        if not whole or found != (generation or found):
            return
        place, generation, at = Place(found, at), found, end
        yield Entry(place, TopicId(UUID(bytes=topic_id)), partition, batch)


def _append(
    logs: Mapping[tuple[TopicId, int], Log], entry: Entry, voids: Iterable[Void], now: Millis
) -> bool:
    log = logs.get((entry.topic_id, entry.partition))
    if log is None:
        return False
    try:
        return _append_to(log, entry, voids, now)
    except CorruptBatchError as error:
        _events.error("journal.damaged", partition=str(log.name), reason=str(error))
        return False


def _append_to(log: Log, entry: Entry, voids: Iterable[Void], now: Millis) -> bool:
    header = check(entry.batch)
    if header.base_offset < log.log_end:
        return False
    if any(void.covers(entry.place, header.next_offset) for void in voids):
        return False
    if header.base_offset > log.log_end:
        # What came before it was too large for the journal and had not been synced either, so
        # nobody was told that any of it is safe.
        _events.info(
            "journal.gap", partition=str(log.name), log_end=log.log_end, entry=header.base_offset
        )
        return False
    log.append_replicated(memoryview(bytearray(entry.batch)), now)
    return True
