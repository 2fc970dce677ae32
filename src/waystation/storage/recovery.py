"""Opening a log: after a clean end nothing is scanned, after a crash only what may be torn.

1. Below the recovery point everything was synced: it is trusted, and never cut.  Damage found
   there is reported, and left for a reader's own checksum to refuse.
2. From the recovery point on every batch is verified.  The log is cut before the first that is
   not whole, and what is cut is kept beside it, in a ``.cut`` file.
3. Indexes and producer states are made anew from where they can be trusted.
4. Files that are none of ours are left alone, and named in an event.
"""

from pathlib import Path
from typing import NamedTuple

from waystation.model.errors import CorruptBatchError
from waystation.model.ids import LeaderEpoch, TopicId, TopicPartition
from waystation.model.offsets import Offset
from waystation.model.topics import TopicSettings
from waystation.records.header import BatchHeader, check
from waystation.replication.epochs import LeaderEpochs
from waystation.storage.checkpoints import LEADER_EPOCHS, read_epochs
from waystation.storage.disk import Disk
from waystation.storage.log import SNAPSHOT, Home, Log
from waystation.storage.producer_state import ProducerStates
from waystation.storage.segment import DELETED, INDEX, LOG, NAME_DIGITS, TIME_INDEX, Segment
from waystation.telemetry.logs import get_logger

PARTITION_METADATA = "partition.metadata"
CUT = ".cut"

_SCAN_BYTES = 1 << 20
_events = get_logger("storage")


class Marks(NamedTuple):
    """What the directory's checkpoints say of one log."""

    recovery_point: Offset
    log_start: Offset
    clean: bool


class _Found(NamedTuple):
    """The files of a log's directory, sorted out."""

    segments: dict[Offset, int]
    indexed: set[Offset]
    timed: set[Offset]
    snapshots: list[Offset]


def open_log(
    home: Home,
    name: TopicPartition,
    topic_id: TopicId,
    path: Path,
    settings: TopicSettings,
    marks: Marks,
    roll_jitter_ms: int = 0,
) -> Log:
    """The log in ``path``, ready to be written to and read from."""
    disk = home.disk
    found = _sort_out(disk, path)
    segments = _segments(home, path, found, marks.log_start)
    for segment in segments[:-1]:
        _mend_indexes(segment, found, settings)
    opening = _Opening(disk, path, settings, marks, segments)
    log_end = opening.verify()
    first = segments[0].base_offset
    log_start = Offset(min(max(marks.log_start, first), log_end))
    epochs = LeaderEpochs(read_epochs(disk, path / LEADER_EPOCHS))
    epochs.truncate_to(log_end)
    for epoch, start in opening.epochs:
        if epoch > epochs.latest:
            epochs.assign(epoch, start)
    return Log(
        name,
        topic_id,
        home,
        path,
        settings,
        segments=segments,
        log_start=log_start,
        log_end=log_end,
        epochs=epochs,
        producers=_producers(disk, path, found.snapshots, segments, log_end),
        roll_jitter_ms=roll_jitter_ms,
    )


class _Opening:
    """The verification of one log's tail."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        settings: TopicSettings,
        marks: Marks,
        segments: list[Segment],
    ) -> None:
        self._disk, self._path = disk, path
        self._interval = settings.index_interval_bytes
        self._marks = marks
        self._segments = segments
        self.epochs: list[tuple[LeaderEpoch, Offset]] = []

    def verify(self) -> Offset:
        """Go through what may be torn; the log's end."""
        suspects = [
            number
            for number, segment in enumerate(self._segments)
            if number == len(self._segments) - 1
            or (not self._marks.clean and self._ends_after_recovery_point(number, segment))
        ]
        end = self._segments[suspects[0]].base_offset
        for number in suspects:
            segment = self._segments[number]
            if segment.base_offset != end:
                return self._drop_from(number, end)
            whole_until, end = self._verify(segment)
            if whole_until < segment.size_bytes:
                self._cut(segment, whole_until, end)
                return self._drop_from(number + 1, end)
            if number < len(self._segments) - 1:
                segment.close()
        return end

    def _ends_after_recovery_point(self, number: int, segment: Segment) -> bool:
        return self._segments[number + 1].base_offset > self._marks.recovery_point

    def _verify(self, segment: Segment) -> tuple[int, Offset]:
        """Note every batch from the last trusted index entry on; where whole batches end."""
        segment.reopen()
        trusted = self._marks.recovery_point if not self._marks.clean else None
        self._trust_index(segment, trusted)
        near = segment.index.by_position(segment.size_bytes)
        last = segment.times.last
        segment.max_timestamp = last.timestamp
        segment.max_timestamp_offset = Offset(segment.base_offset + last.offset)
        position, end = near.position, Offset(segment.base_offset + near.offset)
        size = segment.size_bytes
        for found_at, header in segment.walk(near.position, _SCAN_BYTES):
            if header.base_offset < end or (header.base_offset > end and position > near.position):
                break
            doubtful = trusted is not None and header.base_offset >= trusted
            if doubtful and not _is_whole(segment, found_at, header):
                break
            segment.note(found_at, header.size_bytes, header, header.base_offset, self._interval)
            segment.size_bytes = size  # The walk must not end with what is noted.
            self.epochs.append((LeaderEpoch(header.partition_leader_epoch), header.base_offset))
            position, end = found_at + header.size_bytes, header.next_offset
        if not self._marks.clean and size:
            # What a killed process wrote may be in the page cache only.
            segment.file.datasync()
        return position, end

    def _trust_index(self, segment: Segment, trusted: Offset | None) -> None:
        """Drop entries that a crash may have spoilt."""
        if trusted is not None:
            segment.index.truncate(max(trusted - segment.base_offset, 0))
            segment.times.truncate(max(trusted - segment.base_offset, 0))
        beyond = segment.index.by_position(segment.size_bytes).position != (
            segment.index.entry(len(segment.index) - 1)[1] if len(segment.index) else 0
        )
        if beyond or not segment.index.check() or not segment.times.check():
            _events.warning("index.rebuilt", path=str(segment.index.path))
            segment.index.truncate(0)
            segment.times.truncate(0)

    def _cut(self, segment: Segment, whole_until: int, end: Offset) -> None:
        """Keep what is no whole batch aside, and end the log before it."""
        cut_bytes = segment.size_bytes - whole_until
        aside = segment.path(f".{end}{CUT}")
        _events.warning(
            "log.cut",
            path=str(segment.path(LOG)),
            at=end,
            cut_bytes=cut_bytes,
            kept=str(aside),
            below_recovery_point=end < self._marks.recovery_point,
        )
        copy = self._disk.open(aside, create=True)
        copy.truncate(0)
        for at in range(0, cut_bytes, _SCAN_BYTES):
            count = min(_SCAN_BYTES, cut_bytes - at)
            copy.pwrite(segment.file.pread(count, whole_until + at), at)
        copy.datasync()
        segment.truncate(whole_until, end)
        segment.file.datasync()

    def _drop_from(self, number: int, end: Offset) -> Offset:
        """Segments after a gap hold nothing that was ever acknowledged; keep them aside."""
        for segment in self._segments[number:]:
            _events.warning("segment.cut", path=str(segment.path(LOG)), bytes=segment.size_bytes)
            for path in segment.paths():
                if path.suffix == LOG and segment.size_bytes:
                    self._disk.rename(path, path.with_name(path.name + CUT))
                else:
                    self._disk.unlink(path)
        del self._segments[number:]
        self._disk.sync_directory(self._path)
        last = self._segments[-1]
        if not last.active:
            last.reopen()
        return end


def _is_whole(segment: Segment, position: int, header: BatchHeader) -> bool:
    try:
        check(memoryview(segment.file.pread(header.size_bytes, position)))
    except CorruptBatchError:
        return False
    return True


def _sort_out(disk: Disk, path: Path) -> _Found:
    segments: dict[Offset, int] = {}
    others: dict[str, set[Offset]] = {INDEX: set(), TIME_INDEX: set(), SNAPSHOT: set()}
    for name, is_directory, size_bytes in disk.entries(path):
        stem, dot, kind = name.partition(".")
        suffix = dot + kind
        ours = stem.isdecimal() and len(stem) == NAME_DIGITS and not is_directory
        if name.endswith((DELETED, ".tmp")):
            disk.unlink(path / name)
        elif ours and suffix == LOG:
            segments[Offset(int(stem))] = size_bytes
        elif ours and suffix in others:
            others[suffix].add(Offset(int(stem)))
        elif name not in (LEADER_EPOCHS, PARTITION_METADATA) and not name.endswith(CUT):
            _events.warning("file.foreign", path=str(path / name), action="left alone")
    return _Found(segments, others[INDEX], others[TIME_INDEX], sorted(others[SNAPSHOT]))


def _segments(home: Home, path: Path, found: _Found, log_start: Offset) -> list[Segment]:
    """The segments in order, without those that were retired before the crash."""
    bases = sorted(found.segments)
    while len(bases) > 1 and bases[1] <= log_start:
        stale = Segment(home.disk, path, bases.pop(0), home.files)
        for file in stale.paths():
            home.disk.unlink(file)
    if not bases:
        segment = Segment(home.disk, path, log_start, home.files, active=True)
        segment.file.truncate(0)
        segment.close()
        home.disk.sync_directory(path)
        return [segment]
    return [
        Segment(home.disk, path, base, home.files, size_bytes=found.segments[base])
        for base in bases
    ]


def _mend_indexes(segment: Segment, found: _Found, settings: TopicSettings) -> None:
    """Make the indexes of a closed segment anew if they are missing."""
    base = segment.base_offset
    if base in found.indexed and base in found.timed:
        return
    _events.warning("index.missing", path=str(segment.index.path), action="rebuilding")
    segment.reopen()
    segment.index.truncate(0)
    segment.times.truncate(0)
    size = segment.size_bytes
    for position, header in segment.walk(0, _SCAN_BYTES):
        segment.note(
            position,
            header.size_bytes,
            header,
            header.base_offset,
            settings.index_interval_bytes,
        )
        segment.size_bytes = size
    segment.close()
    segment.forget_files()


def _producers(
    disk: Disk, path: Path, snapshots: list[Offset], segments: list[Segment], log_end: Offset
) -> ProducerStates:
    """The newest snapshot that the log reaches, and what the batches behind it say."""
    states, since = ProducerStates(), segments[0].base_offset
    for offset in reversed(snapshots):
        file = path / f"{offset:020d}{SNAPSHOT}"
        if offset > log_end:
            disk.unlink(file)
            continue
        try:
            states, since = ProducerStates.from_snapshot(disk.read(file)), offset
            break
        except (ValueError, OSError):
            _events.warning("snapshot.damaged", path=str(file))
    for segment in segments:
        if since >= log_end:
            break
        located = segment.locate(since) if segment.size_bytes else None
        if located is None:
            continue
        for _, header in segment.walk(located.position, _SCAN_BYTES):
            if header.producer_id >= 0 and header.base_offset >= since:
                states.note(header, header.base_offset)
            since = max(since, header.next_offset)
    return states


def new_log(
    home: Home,
    name: TopicPartition,
    topic_id: TopicId,
    path: Path,
    settings: TopicSettings,
    roll_jitter_ms: int = 0,
) -> Log:
    """An empty log in ``path``, which exists."""
    marks = Marks(Offset(0), Offset(0), clean=True)
    return open_log(home, name, topic_id, path, settings, marks, roll_jitter_ms)
