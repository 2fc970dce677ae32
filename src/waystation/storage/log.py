"""One partition's log: segments in order, one of them active.

1. Offsets have no gaps where nothing was compacted, and never repeat.
2. ``flushed_end`` is the end of what survives a crash; it moves only after the disk said so.
3. A read gives whole batches, and never one at or past the end it was given.
4. After an error of the disk that leaves the log in doubt, its whole directory is offline.

A log belongs to the loop's thread; only a ``FlushTicket`` is used by others.  Opening a log is in
``recovery.py``, growing old in ``retention.py``.
"""

import errno
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from waystation.model.errors import OffsetOutOfRangeError, StorageError
from waystation.model.ids import LeaderEpoch, TopicId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.batch import records_of
from waystation.records.header import BatchHeader, batches, stamp
from waystation.replication.epochs import EpochEnd, LeaderEpochs
from waystation.runtime.regions import FileRegion
from waystation.storage.checkpoints import LEADER_EPOCHS, write_epochs
from waystation.storage.disk import Disk, DiskFile
from waystation.storage.producer_state import Appended, ProducerStates
from waystation.storage.segment import OpenFiles, Segment

__all__ = ["Appended", "FlushTicket", "Log", "LogSlice"]

SNAPSHOT = ".snapshot"

_RELATIVE_OFFSET_MAX = (1 << 31) - 1
_POSITION_MAX = (1 << 31) - 1
_PLACES_MAX = 2_048
_WRITE_BACK_BYTES = 8 << 20


class LogSlice(NamedTuple):
    """What a read gave: bytes in a file, and the offset to read next."""

    region: FileRegion | None
    next_offset: Offset


class Home(Protocol):
    """The data directory a log lies in, as far as the log needs it."""

    path: Path
    disk: Disk
    files: OpenFiles
    offline: str | None

    def fail(self, reason: str) -> None:
        """Take everything in the directory offline."""
        ...

    def delete_log(self, log: "Log") -> None:
        """Remove a log with all its records."""
        ...

    def plan_log_starts(self) -> Callable[[], None]:
        """What writes down where logs start, to be run by a thread."""
        ...


class FlushTicket:
    """A promise to be kept by a thread: after ``sync`` everything before ``end`` is safe."""

    __slots__ = ("_disk", "_files", "_names_in", "_writes", "end")

    def __init__(
        self,
        disk: Disk,
        end: Offset,
        files: list[DiskFile],
        writes: list[Callable[[], None]],
        names_in: Path | None,
    ) -> None:
        self._disk = disk
        self._files = files
        self._writes = writes
        self._names_in = names_in
        self.end = end

    def sync(self) -> None:
        """Sync files first, then the names of new ones."""
        for write in self._writes:
            write()
        for file in self._files:
            file.datasync()
        if self._names_in is not None:
            self._disk.sync_directory(self._names_in)


class Log:
    """The segments of one partition, oldest first; the last one is active."""

    def __init__(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        home: Home,
        path: Path,
        settings: TopicSettings,
        *,
        segments: list[Segment],
        log_start: Offset,
        log_end: Offset,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        roll_jitter_ms: int = 0,
    ) -> None:
        """Everything before ``log_end`` is on disk: recovery, or a clean end, saw to that."""
        self.name = name
        self.topic_id = topic_id
        self.directory = home
        self.path = path
        self.settings = settings
        self.segments = segments
        self.log_start = log_start
        self.log_end = log_end
        self.flushed_end = log_end
        self.epochs = epochs
        self.producers = producers
        self.dirty_since: Millis | None = None
        self.retired: list[Segment] = []
        self._bases = [one.base_offset for one in segments]
        self._places: dict[Offset, tuple[Segment, int]] = {}
        self._unsynced: list[Segment] = []
        self._epochs_changed = False
        self._names_changed = False
        self._snapshot_at = log_end
        self._written_back = segments[-1].size_bytes
        self._roll_jitter_ms = roll_jitter_ms

    def __repr__(self) -> str:
        return f"Log({self.name}, [{self.log_start}, {self.log_end}))"

    @property
    def active(self) -> Segment:
        """The segment that is written to."""
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        """How much disk the batches take."""
        return sum(one.size_bytes for one in self.segments)

    def check_online(self) -> None:
        """Raise if the directory is offline."""
        if self.directory.offline is not None:
            raise StorageError(
                f"{self.name}: {self.directory.path} is offline: {self.directory.offline}"
            )

    def fail(self, error: StorageError) -> None:
        """The disk failed in a way that leaves this log in doubt."""
        self.directory.fail(str(error))

    # --- writing ------------------------------------------------------------------------

    def append(
        self, batch: memoryview, header: BatchHeader, leader_epoch: LeaderEpoch, now: Millis
    ) -> Appended:
        """The leader's append: give the batch its offsets and write it.

        HOT: once per batch (benchmarks/storage/append.py).  ``batch`` is stamped in place.
        """
        if self.directory.offline is not None:
            self.check_online()
        idempotent = header.producer_id >= 0
        if idempotent and (repeated := self.producers.check(header)) is not None:
            return repeated
        base = self.log_end
        segment = self._segment_for(len(batch), base + header.last_offset_delta, now)
        stamp(batch, 0, base, leader_epoch)
        self._write(segment, batch, header, base, now)
        if self.epochs.assign(leader_epoch, base):
            self._epochs_changed = True
        if idempotent:
            self.producers.note(header, base)
        return Appended(base, Offset(self.log_end - 1), now)

    def append_as_replica(self, data: memoryview, now: Millis) -> None:
        """A follower's append: batches that have their offsets already."""
        self.check_online()
        for at, header in batches(data):
            base = header.base_offset
            assert base >= self.log_end, f"{self.name}: {base} appended at {self.log_end}"
            batch = data[at : at + header.size_bytes]
            segment = self._segment_for(len(batch), header.last_offset, now)
            self._write(segment, batch, header, base, now)
            if self.epochs.assign(LeaderEpoch(header.partition_leader_epoch), base):
                self._epochs_changed = True
            if header.producer_id >= 0:
                self.producers.note(header, base)

    def _write(
        self, segment: Segment, batch: memoryview, header: BatchHeader, base: Offset, now: Millis
    ) -> None:
        position = segment.size_bytes
        try:
            segment.append(batch, header, base, self.settings.index_interval_bytes)
        except OSError as error:
            raise self._failed(error, "write") from error
        self.log_end = Offset(base + header.last_offset_delta + 1)
        if self.dirty_since is None:
            self.dirty_since = now
        self._remember(base, segment, position)

    def _remember(self, offset: Offset, segment: Segment, position: int) -> None:
        """Readers follow each other, and producers: most look-ups end here."""
        if len(self._places) >= _PLACES_MAX:
            self._places.clear()
        self._places[offset] = (segment, position)

    def _failed(self, error: OSError, what: str) -> StorageError:
        """A full disk refuses this batch; anything else takes the directory offline."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = self.directory.disk.free_bytes(self.directory.path)
            return StorageError(
                f"{self.directory.path} is full ({free} bytes free): free some space, or lower "
                "the topics' retention"
            )
        failure = StorageError(f"cannot {what} {self.path}: {error.strerror or error}")
        self.directory.fail(str(failure))
        return failure

    # --- rolling ------------------------------------------------------------------------

    def _segment_for(self, nbytes: int, last_offset: int, now: Millis) -> Segment:
        segment, settings = self.active, self.settings
        if segment.size_bytes == 0:
            segment.first_at = now
            return segment
        if (
            segment.size_bytes + nbytes > settings.segment_bytes
            or segment.size_bytes + nbytes > _POSITION_MAX
            or last_offset - segment.base_offset > _RELATIVE_OFFSET_MAX
            or segment.index.size_bytes >= settings.segment_index_bytes
        ):
            self.roll()
            self.active.first_at = now
        return self.active

    def maybe_roll(self, now: Millis) -> bool:
        """Close the active segment if it is older than ``segment.ms``."""
        segment = self.active
        if segment.size_bytes == 0 or self.directory.offline is not None:
            return False
        if segment.first_at is None:
            first = next(segment.walk(0), None)
            began = now if first is None else first.header.max_timestamp
            segment.first_at = Millis(min(max(began, 0), now))
        if now - segment.first_at < self.settings.segment_ms - self._roll_jitter_ms:
            return False
        self.roll()
        return True

    def roll(self) -> None:
        """Close the active segment and begin another at the log's end."""
        closed = self.active
        fresh = Segment(
            self.directory.disk, self.path, self.log_end, self.directory.files, active=True
        )
        try:
            fresh.file.truncate(0)
            self._write_snapshot()
            closed.close()
        except OSError as error:
            raise self._failed(error, "roll") from error
        self._unsynced.append(closed)
        self.segments.append(fresh)
        self._bases.append(fresh.base_offset)
        self._names_changed = True
        self._written_back = 0

    # --- syncing ------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """Whether a crash could take something."""
        return self.flushed_end < self.log_end or bool(self._unsynced) or self._names_changed

    def begin_flush(self) -> FlushTicket | None:
        """What a thread must sync so that everything appended so far is safe."""
        if not self.is_dirty:
            return None
        files: list[DiskFile] = []
        writes: list[Callable[[], None]] = []
        for segment in self._unsynced:
            files.append(segment.file)
            writes += [segment.index.datasync, segment.times.datasync]
        if self.active.size_bytes:
            files.append(self.active.file)
        if self._epochs_changed:
            entries = self.epochs.entries
            path = self.path / LEADER_EPOCHS
            writes.append(lambda: write_epochs(self.directory.disk, path, entries))
        names_in = self.path if self._names_changed else None
        self._unsynced = []
        self._epochs_changed = self._names_changed = False
        self.dirty_since = None
        return FlushTicket(self.directory.disk, self.log_end, files, writes, names_in)

    def finish_flush(self, ticket: FlushTicket) -> None:
        """The ticket's sync succeeded."""
        self.flushed_end = max(self.flushed_end, min(ticket.end, self.log_end))

    def begin_write_back(self) -> Callable[[], None] | None:
        """Where many bytes wait for a late sync: what lets the disk begin with them."""
        segment = self.active
        waiting = segment.size_bytes - self._written_back
        if waiting < _WRITE_BACK_BYTES:
            return None
        file, start = segment.file, self._written_back
        self._written_back = segment.size_bytes
        return lambda: file.start_writeback(start, waiting)

    def save_progress(self) -> None:
        """Write indexes and producers, so that a crash leaves little to make anew."""
        self.active.save_indexes()
        if self._snapshot_at < self.log_end:
            self._write_snapshot()

    def _write_snapshot(self) -> None:
        """Not synced: a damaged snapshot is noticed by its checksum, and an older one used."""
        disk, now_at = self.directory.disk, self.log_end
        disk.replace(self.snapshot_path(now_at), self.producers.snapshot(), durable=False)
        before, self._snapshot_at = self._snapshot_at, now_at
        if before not in self._bases and before != now_at:
            disk.unlink(self.snapshot_path(before))

    def snapshot_path(self, offset: Offset) -> Path:
        """The snapshot of producers as they were before ``offset``."""
        return self.path / f"{offset:020d}{SNAPSHOT}"

    # --- reading ------------------------------------------------------------------------

    def read(
        self, offset: Offset, max_bytes: int, upto: Offset, at_least_one: bool = True
    ) -> LogSlice:
        """Whole batches from the one that holds ``offset``, all before ``upto``.

        HOT: once per partition of a fetch.
        """
        if self.directory.offline is not None:
            self.check_online()
        if offset < self.log_start or offset > self.log_end:
            raise OffsetOutOfRangeError(offset, self.log_start, self.log_end)
        if offset >= upto:
            return LogSlice(None, offset)
        try:
            return self._read(offset, max_bytes, upto, at_least_one)
        except OSError as error:
            raise self._failed(error, "read") from error

    def _read(self, offset: Offset, max_bytes: int, upto: Offset, at_least_one: bool) -> LogSlice:
        found = self._find(offset)
        if found is None:
            return LogSlice(None, offset)
        segment, start = found
        limit, behind = self._limit(segment, upto)
        if limit - start > max_bytes:
            limit, boundary = segment.boundary(start, start + max_bytes)
            behind = behind if boundary is None else boundary
            if limit == start and at_least_one:
                first = next(segment.walk(start)).header
                limit, behind = start + first.size_bytes, first.next_offset
        if limit <= start:
            return LogSlice(None, offset)
        self._remember(behind, segment, limit)
        return LogSlice(FileRegion(segment.file, start, limit - start), behind)

    def _find(self, offset: Offset) -> tuple[Segment, int] | None:
        """The segment and position of the batch that holds ``offset``, or the next one."""
        known = self._places.get(offset)
        if known is not None and known[1] < known[0].size_bytes:
            return known
        for segment in self.segments[max(bisect_right(self._bases, offset) - 1, 0) :]:
            located = segment.locate(offset)
            if located is not None:
                return segment, located.position
        return None

    def _limit(self, segment: Segment, upto: Offset) -> tuple[int, Offset]:
        """Where in ``segment`` the batches before ``upto`` end, and the offset there."""
        if segment is self.active:
            behind = self.log_end
        else:
            behind = self._bases[bisect_right(self._bases, segment.base_offset)]
        if upto >= behind:
            return segment.size_bytes, behind
        known = self._places.get(upto)
        if known is not None and known[0] is segment:
            return known[1], upto
        located = segment.locate(upto)
        return (segment.size_bytes if located is None else located.position), upto

    def find_by_time(self, timestamp: Millis) -> tuple[Offset, Millis] | None:
        """The first record at or after ``timestamp``, in the order of offsets."""
        for segment in self.segments:
            if segment.newest()[0] >= timestamp:
                located = segment.locate_time(timestamp)
                while located is not None:
                    for record in self._records(segment, located.position, located.header):
                        if record[1] >= timestamp and record[0] >= self.log_start:
                            return Offset(record[0]), Millis(record[1])
                    located = next(segment.walk(located.position + located.header.size_bytes), None)
        return None

    def max_timestamp(self) -> tuple[Offset, Millis] | None:
        """The record with the greatest timestamp; the first of several."""
        segment = max(self.segments, key=lambda one: one.newest()[0])
        newest, offset = segment.newest()
        if newest < 0:
            return None
        located = segment.locate(offset)
        assert located is not None, f"{self.name}: no batch at {offset}"
        found = self._records(segment, located.position, located.header)
        return next(((Offset(one[0]), Millis(one[1])) for one in found if one[1] == newest), None)

    def _records(
        self, segment: Segment, position: int, header: BatchHeader
    ) -> list[tuple[int, int]]:
        batch = segment.file.pread(header.size_bytes, position)
        return [(record.offset, record.timestamp) for record in records_of(batch)]

    def epoch_end(self, epoch: LeaderEpoch) -> EpochEnd:
        """Where an epoch ends in this log."""
        return self.epochs.end_of(epoch, self.log_end)

    # --- cutting ------------------------------------------------------------------------

    def advance_log_start(self, offset: Offset) -> None:
        """Let the log begin at ``offset``; segments wholly before it are retired."""
        if offset <= self.log_start:
            return
        assert offset <= self.log_end, f"{self.name}: start {offset} past {self.log_end}"
        self.log_start = offset
        if self.epochs.advance_start(offset):
            self._epochs_changed = True
        while len(self.segments) > 1 and self._bases[1] <= offset:
            segment = self.segments.pop(0)
            del self._bases[0]
            self.directory.files.forget(segment)
            self.retired.append(segment)
        self._places.clear()

    def truncate_to(self, offset: Offset) -> None:
        """Cut everything from ``offset`` on: a follower's tail that no leader has."""
        if offset >= self.log_end:
            return
        self._places.clear()
        while len(self.segments) > 1 and self.active.base_offset >= offset:
            gone = self.segments.pop()
            self._bases.pop()
            for path in gone.paths():
                self.directory.disk.unlink(path)
        segment = self.active
        if not segment.active:
            segment.reopen()
        located = segment.locate(offset)
        if located is not None:
            segment.truncate(located.position, located.header.base_offset)
            offset = located.header.base_offset
        self.log_end = offset
        self.flushed_end = min(self.flushed_end, offset)
        self.epochs.truncate_to(offset)
        self._epochs_changed = self._names_changed = True
        self._written_back = min(self._written_back, segment.size_bytes)

    def reconfigure(self, settings: TopicSettings) -> None:
        """Obey new settings from the next append on."""
        self.settings = settings

    # --- ending -------------------------------------------------------------------------

    def close(self) -> None:
        """Sync everything and write what the next start needs to scan nothing."""
        ticket = self.begin_flush()
        if ticket is not None:
            ticket.sync()
            self.finish_flush(ticket)
        self.save_progress()
        self.active.index.datasync()
        self.active.times.datasync()
