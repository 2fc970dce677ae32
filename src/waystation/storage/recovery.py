"""Opening a log: after a clean end nothing is scanned, after a crash only what may be torn.

1. Below the recovery point everything was synced: it is trusted, and never cut.  Damage found
   there is reported, and left for a reader's own checksum to refuse.
2. From the recovery point on every batch is verified.  The log is cut before the first that is
   not whole, and what is cut is kept beside it, in a ``.cut`` file.
3. Indexes, leader epochs, producers, their transactions and idempotency keys are made anew from
   the recovery point on.  Which transactions were aborted before it is believed; nonsense about
   it is made anew.
4. When a log is open, all of it is on disk, and nothing of what was cut can come back.
5. Files that are none of ours are left alone, and named in an event.
6. Where compaction was interrupted, what it had decided is carried out; see ``swapping.py``.

The recovery point is the later of two: the directory's checkpoint, and the newest producer
snapshot, which is written only after everything before it was synced.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from waystation.model.errors import CorruptBatchError
from waystation.model.ids import TopicId, TopicPartition
from waystation.model.offsets import NO_OFFSET, Offset
from waystation.model.topics import TopicSettings
from waystation.records.control import Marker
from waystation.records.header import HEADER_BYTES, BatchHeader, peek
from waystation.records.once import OnceEntry
from waystation.replication.epochs import LeaderEpochs
from waystation.runtime.regions import ReadableFile
from waystation.storage import names
from waystation.storage.checkpoints import read_epochs
from waystation.storage.cuttings import keep_aside, keep_segment_aside
from waystation.storage.log import Log
from waystation.storage.once_files import OnceFiles
from waystation.storage.once_window import OnceWindow
from waystation.storage.producer_state import ProducerStates
from waystation.storage.segment import Segment
from waystation.storage.snapshots import decode_snapshot
from waystation.storage.surroundings import Home, Opened
from waystation.storage.swapping import finish_swaps
from waystation.storage.txn_index import ENTRY as TXN_ENTRY
from waystation.storage.unstable import EndedTransaction
from waystation.storage.walk import (
    BrokenBatchError,
    Step,
    marker_at,
    once_at,
    verify,
    walk,
)
from waystation.telemetry.logs import get_logger

_events = get_logger("storage")


class Marks(NamedTuple):
    """What the directory's checkpoints say of one log."""

    recovery_point: Offset
    log_start: Offset
    clean: bool
    clean_end: Offset = Offset(0)
    """The end of what was compacted; not to be confused with a clean shutdown."""


class _Found(NamedTuple):
    """The files of a log's directory, sorted out."""

    segments: dict[Offset, int]
    indexed: dict[Offset, None]
    timed: dict[Offset, None]
    aborting: dict[Offset, int]
    """Which segments know of aborted transactions, and how large their indexes of them are."""
    snapshots: list[Offset]
    once: list[Offset]


class _Past(NamedTuple):
    """One batch that the log holds."""

    header: BatchHeader
    marker: Marker | None
    once: list[OnceEntry]


def new_log(
    home: Home,
    name: TopicPartition,
    topic_id: TopicId,
    path: Path,
    settings: TopicSettings,
    jitter_share: float = 0.0,
) -> Log:
    """An empty log in ``path``, which exists."""
    marks = Marks(Offset(0), Offset(0), clean=False)
    return open_log(home, name, topic_id, path, settings, marks, jitter_share)


def open_log(
    home: Home,
    name: TopicPartition,
    topic_id: TopicId,
    path: Path,
    settings: TopicSettings,
    marks: Marks,
    jitter_share: float = 0.0,
) -> Log:
    """The log in ``path``, ready to be written to and read from."""
    opened = Recovery(home, path, settings, marks).run()
    return Log(name, topic_id, home, path, settings, opened, jitter_share)


class Recovery:
    """The opening of one log."""

    def __init__(self, home: Home, path: Path, settings: TopicSettings, marks: Marks) -> None:
        self._home, self._disk, self._path = home, home.disk, path
        self._settings = settings
        self._marks = marks
        self._segments: list[Segment] = []
        self._retired: list[Segment] = []
        self._closed: Segment | None = None
        self._sizes: dict[Offset, int] = {}
        self._tail: list[_Past] = []
        self._trusted = marks.recovery_point
        self._names_changed = self._epochs_changed = False
        self.damage: list[str] = []

    def run(self) -> Opened:
        """Look at the files, verify what may be torn, and rebuild what hangs on it."""
        found = self._sort_out()
        snapshot, producers = self._newest_snapshot(found.snapshots)
        self._trusted = max(self._marks.recovery_point, snapshot)
        self._list_segments(found)
        self._examine_segments()
        while len(self._segments) > 1 and self._segments[0].next_offset <= self._marks.log_start:
            self._retired.append(self._segments.pop(0))
        log_end = self._segments[-1].next_offset
        log_start = max(self._marks.log_start, self._segments[0].base_offset)
        if log_start > log_end:
            log_end = self._begin_anew(log_start)
        snapshots = self._drop_snapshots_past(log_end, found.snapshots)
        epochs = self._epochs(log_start, log_end)
        if snapshot > log_end:
            snapshot, producers = Offset(0), ProducerStates()
        self._mend_aborted(found.aborting)
        self._replay_producers(producers, snapshot)
        once, once_files = self._replay_once(found.once, snapshot, log_end)
        if self._names_changed:
            self._disk.sync_directory(self._path)
        recovery_point = min(self._trusted, log_end)
        return Opened(
            self._segments,
            log_start,
            log_end,
            recovery_point,
            epochs,
            self._epochs_changed,
            producers,
            snapshots,
            self.damage,
            sum(one.header.size_bytes for one in self._tail),
            self._retired,
            # One past the end belongs to a tail that is gone.
            self._marks.clean_end if self._marks.clean_end <= log_end else Offset(0),
            once,
            once_files,
        )

    # --- files --------------------------------------------------------------------------

    def _sort_out(self) -> _Found:
        finish_swaps(self._disk, self._path)
        segments: dict[Offset, int] = {}
        others: dict[str, dict[Offset, int]] = {
            suffix: {} for suffix in (*names.INDEXES, names.KEY_INDEX, names.SNAPSHOT, names.ONCE)
        }
        for name, is_directory, size_bytes in self._disk.entries(self._path):
            offset, suffix = (not is_directory and names.parse_file_name(name)) or (Offset(-1), "")
            if not is_directory and _is_leftover(name):
                self._remove(name)
            elif suffix == names.LOG:
                segments[offset] = size_bytes
            elif suffix in others:
                others[suffix][offset] = size_bytes
            elif suffix != names.CUT and name not in _OTHER_FILES:
                _events.warning("file.foreign", path=str(self._path / name), action="left alone")
        for suffix in (*names.INDEXES, names.KEY_INDEX):
            for orphan in [one for one in others[suffix] if one not in segments]:
                self._remove(names.file_name(orphan, suffix))
        return _Found(
            segments,
            dict.fromkeys(others[names.OFFSET_INDEX]),
            dict.fromkeys(others[names.TIME_INDEX]),
            others[names.TXN_INDEX],
            sorted(others[names.SNAPSHOT]),
            sorted(others[names.ONCE]),
        )

    def _remove(self, name: str) -> None:
        self._disk.unlink(self._path / name)
        self._names_changed = True

    def _newest_snapshot(self, offsets: list[Offset]) -> tuple[Offset, ProducerStates]:
        for offset in sorted(offsets, reverse=True):
            path = self._path / names.file_name(offset, names.SNAPSHOT)
            try:
                producers = decode_snapshot(self._disk.read(path))
                return offset, ProducerStates(producers)
            except ValueError as problem:
                _events.warning("snapshot.damaged", path=str(path), found=str(problem))
                offsets.remove(offset)
                self._remove(path.name)
        return Offset(0), ProducerStates()

    def _drop_snapshots_past(self, log_end: Offset, offsets: list[Offset]) -> list[Offset]:
        """They belong to a tail that is gone, and may never be mistaken for its successor's."""
        for offset in offsets:
            if offset > log_end:
                self._remove(names.file_name(offset, names.SNAPSHOT))
        return [offset for offset in offsets if offset <= log_end]

    # --- segments -----------------------------------------------------------------------

    def _list_segments(self, found: _Found) -> None:
        """The segments in order; those that end before the log's start are set apart."""
        bases = sorted(found.segments)
        for base, end in zip(bases, [*bases[1:], NO_OFFSET], strict=False):
            size_bytes = found.segments[base]
            segment = Segment(self._home.files, self._path, base, size_bytes, end)
            if base in found.aborting:
                segment.adopt_txn_index(found.aborting[base])
            self._sizes[base] = size_bytes
            if base < end <= self._marks.log_start:
                self._retired.append(segment)
                continue
            self._segments.append(segment)
            lost_index = base not in found.indexed or base not in found.timed
            if lost_index and size_bytes and base < end <= self._trusted:
                _events.warning("index.rebuilt", path=str(segment.log.path))
                segment.rebuild_indexes(self._settings.index_interval_bytes)
        begins = max(self._trusted, self._marks.log_start)
        if self._segments and self._segments[0].base_offset > begins:
            self._drop_from(0, begins)
        if not self._segments:
            self._first_segment()

    def _first_segment(self) -> None:
        base = max(self._marks.log_start, self._trusted)
        if base > self._marks.log_start:
            self._report(f"no segment is left of what ended at {base} or later")
        self._begin_segment(base)

    def _begin_segment(self, base: Offset) -> None:
        fresh = Segment.create(self._home.files, self._path, base)
        self._segments.append(fresh)
        self._sizes[base] = 0
        self._names_changed = True

    def _begin_anew(self, base: Offset) -> Offset:
        """The log's start was moved past all that survived: offsets are not given twice."""
        self._retired += self._segments
        self._segments.clear()
        self._tail.clear()
        self._begin_segment(base)
        return base

    # --- verification -------------------------------------------------------------------

    def _examine_segments(self) -> None:
        """Go through every segment that reaches past the recovery point."""
        bases = [one.base_offset for one in self._segments]
        number = max(bisect_right(bases, self._trusted) - 1, 0)
        end = self._segments[number].base_offset
        while number < len(self._segments):
            segment = self._segments[number]
            if segment.base_offset != end:
                if not end < segment.base_offset <= self._marks.clean_end:
                    self._drop_from(number, end)
                    break
                self._segments[number - 1].next_offset = segment.base_offset
            whole = self._examine(segment)
            end = segment.next_offset
            number += 1
            if end < self._trusted:
                end = self._pass_over(segment, number, whole)
            elif not whole:
                self._drop_from(number, end)
            elif number < len(self._segments):
                segment.finish()
            if segment.next_offset <= self._trusted:
                self._sync_indexes(segment)
        if self._closed is self._segments[-1]:
            self._begin_segment(end)

    def _examine(self, segment: Segment) -> bool:
        """Note every batch from the last trusted index entry on; whether all are whole."""
        size_bytes = self._sizes[segment.base_offset]
        segment.forget_aborted(self._trusted)
        if not size_bytes:
            segment.next_offset = segment.base_offset
            return True
        position = self._anchor(segment)
        segment.size_bytes, segment.next_offset = position, segment.base_offset
        file = segment.file()
        try:
            for step in walk(file, position, size_bytes):
                if max(step.header.next_offset - 1, segment.next_offset) >= self._trusted:
                    break
                self._note(segment, step.header)
                position = segment.size_bytes
            for step in verify(file, position, size_bytes):
                self._expect(segment, step.position, step.header)
                self._note(segment, step.header)
                self._tail.append(_past_of(file, step))
        except BrokenBatchError as broken:
            if segment.next_offset < self._trusted:
                self._report(f"{segment.log.name}: {broken}")
            else:
                self._cut(segment, size_bytes, broken)
            return False
        if segment.next_offset > self._trusted:
            # A killed process may have left it, and its name, in the page cache only.
            file.datasync()
            self._names_changed = True
        return True

    def _sync_indexes(self, segment: Segment) -> None:
        """No checkpoint will come back to this segment, whose indexes may have been mended."""
        for sync in segment.begin_index_syncs():
            sync.file.datasync()
            sync.owner.finish_sync(sync)

    def _pass_over(self, segment: Segment, following: int, whole: bool) -> Offset:
        """A segment that cannot be followed up to the recovery point is kept as it is.

        Nothing below that point is cut.  The log goes on behind it: with the next segment if
        bytes are damaged, at the recovery point if they are missing.
        """
        if whole and max(segment.next_offset, self._marks.log_start) < self._trusted:
            self._report(f"{segment.log.name} ends before the recovery point {self._trusted}")
        segment.finish()
        segment.size_bytes = self._sizes[segment.base_offset]
        segment.next_offset = self._trusted
        if not whole and following < len(self._segments):
            segment.next_offset = self._segments[following].base_offset
        self._closed = segment
        return segment.next_offset

    def _anchor(self, segment: Segment) -> int:
        """Where to begin: at a batch that a trusted index entry names, or at the beginning."""
        if segment.base_offset < self._trusted and segment.size_bytes:
            if segment.adopt_indexes():
                position = segment.rewind(self._trusted)
                if position == 0 or self._is_batch(segment, position):
                    return position
            _events.warning("index.nonsense", path=str(segment.log.path), action="rebuilding")
        segment.reset_indexes()
        return 0

    def _is_batch(self, segment: Segment, position: int) -> bool:
        try:
            header = peek(segment.file().pread(HEADER_BYTES, position))
        except CorruptBatchError:
            return False
        return header.last_offset == segment.base_offset + segment.offset_index.last_offset

    def _expect(self, segment: Segment, position: int, header: BatchHeader) -> None:
        """The base offset is outside the checksum: it must be the one that follows.

        Compaction, here or at the leader, may have taken what lay between.  Between segments
        it leaves no gap: what is missing there was lost.
        """
        base, expected = header.base_offset, segment.next_offset
        compacted = self._settings.compacts or base <= self._marks.clean_end
        if base != expected and not (base > expected and compacted):
            raise BrokenBatchError(
                position, f"a batch of offset {header.base_offset}, not {segment.next_offset}"
            )

    def _note(self, segment: Segment, header: BatchHeader) -> None:
        segment.note(
            header.size_bytes,
            header.last_offset,
            header.newest_timestamp,
            self._settings.index_interval_bytes,
        )

    def _report(self, damage: str) -> None:
        self.damage.append(damage)
        _events.error("log.damaged", path=str(self._path), found=damage)

    # --- cutting ------------------------------------------------------------------------

    def _cut(self, segment: Segment, size_bytes: int, broken: BrokenBatchError) -> None:
        """Keep what is no whole batch aside, and end the log before it."""
        position, offset = segment.size_bytes, segment.next_offset
        kept = keep_aside(self._disk, self._path, segment, size_bytes)
        _events.warning(
            "log.cut",
            path=str(segment.log.path),
            at=offset,
            cut_bytes=size_bytes - position,
            found=str(broken),
            kept=kept,
        )
        segment.file().truncate(position)
        segment.file().datasync()
        self._names_changed = True

    def _drop_from(self, number: int, end: Offset) -> None:
        """Segments behind a gap hold nothing that was ever acknowledged; keep them aside."""
        for segment in self._segments[number:]:
            _events.warning("segment.cut", path=str(segment.log.path), log_end=end)
            keep_segment_aside(self._disk, self._path, segment)
            self._names_changed = True
        del self._segments[number:]

    # --- what hangs on the batches ------------------------------------------------------

    def _epochs(self, log_start: Offset, log_end: Offset) -> LeaderEpochs:
        written = read_epochs(self._disk, self._path / names.LEADER_EPOCHS)
        known_from = written[0].start if written else self._trusted
        if known_from > log_start and log_start < min(self._trusted, log_end):
            # Lost, or written for a later start that was not written down itself.
            written = []
        epochs = LeaderEpochs(written)
        if not written:
            for header, *_ in self._past(log_start, self._trusted):
                epochs.assign(header.partition_leader_epoch, header.base_offset)
        if not self._marks.clean:
            epochs.truncate_to(self._trusted)
        for header, *_ in self._tail:
            if header.partition_leader_epoch >= 0:
                epochs.assign(header.partition_leader_epoch, header.base_offset)
        epochs.truncate_to(log_end)
        epochs.advance_start(log_start)
        self._epochs_changed = list(epochs.entries) != written
        return epochs

    def _replay_producers(self, producers: ProducerStates, since: Offset) -> None:
        """Retired segments count too: their producers may be in no snapshot yet."""
        for past in self._retired_past(since):
            producers.replay(past.header, past.marker)
        if any(one.next_offset > since for one in self._retired):
            producers.forget_transactions()
        if since < self._trusted:
            for past in self._past(since, self._trusted):
                producers.replay(past.header, past.marker)
        for ended in _aborted(producers, self._tail):
            if ended.last_offset >= self._segments[0].base_offset:
                self._segment_of(ended.last_offset).note_aborted(ended)

    def _replay_once(
        self, found: list[Offset], snapshot: Offset, log_end: Offset
    ) -> tuple[OnceWindow, OnceFiles]:
        """Idempotency keys: those on disk, and those of batches behind the snapshot.

        A valid snapshot vouches for what was written beside it, unless that is damaged.
        """
        window, files = OnceWindow(), OnceFiles(self._disk, self._path)
        whole = files.load(found, log_end, window)
        since = snapshot if whole else min(snapshot, files.written_to)
        for past in chain(self._retired_past(since), self._past(since, self._trusted), self._tail):
            window.note(past.once)
        if not whole:
            files.mend(log_end, window)
        return window, files

    def _segment_of(self, offset: Offset) -> Segment:
        bases = [one.base_offset for one in self._segments]
        return self._segments[bisect_right(bases, offset) - 1]

    def _retired_past(self, since: Offset) -> Iterator[_Past]:
        for segment in self._retired:
            if segment.next_offset > since:
                with suppress(BrokenBatchError):
                    for step in verify(segment.file(), 0, segment.size_bytes):
                        if step.header.base_offset >= since:
                            yield _past_of(segment.file(), step)

    def _past(self, since: Offset, upto: Offset) -> Iterator[_Past]:
        """The trusted batches from ``since`` on, as far as they can be followed."""
        for segment in self._segments:
            if segment.next_offset <= since or segment.base_offset >= upto:
                continue
            start = segment.offset_index.before(since - segment.base_offset)
            try:
                for step in walk(segment.file(), start, segment.size_bytes):
                    if since <= step.header.base_offset < upto:
                        yield _past_of(segment.file(), step)
            except BrokenBatchError:
                continue

    # --- aborted transactions -----------------------------------------------------------

    def _mend_aborted(self, found: dict[Offset, int]) -> None:
        """Make nonsense about what was aborted before the recovery point anew, from all batches."""
        damaged = {
            one.base_offset: one
            for one in self._segments
            if one.txn_index is not None
            and one.next_offset <= self._trusted
            and not self._is_sane(one, found[one.base_offset])
        }
        if not damaged:
            return
        for segment in damaged.values():
            _events.warning("index.rebuilt", path=str(segment.log.path), index=names.TXN_INDEX)
            segment.begin_txn_index()
        everything = chain(self._retired_past(Offset(0)), self._past(Offset(0), self._trusted))
        for ended in _aborted(ProducerStates(), everything):
            for segment in damaged.values():
                if segment.base_offset <= ended.last_offset < segment.next_offset:
                    segment.note_aborted(ended)
        for segment in damaged.values():
            segment.save_indexes()
            self._sync_indexes(segment)

    def _is_sane(self, segment: Segment, size_bytes: int) -> bool:
        index = segment.txn_index
        whole = size_bytes % TXN_ENTRY.size == 0
        return (
            whole and index is not None and index.is_sane(segment.base_offset, segment.next_offset)
        )


def _past_of(file: ReadableFile, step: Step) -> _Past:
    return _Past(step.header, marker_at(file, step), once_at(file, step))


def _aborted(producers: ProducerStates, past: Iterable[_Past]) -> Iterator[EndedTransaction]:
    """Replay the past; the transactions that were aborted in it, by their markers."""
    for header, marker, _ in past:
        ended = producers.replay(header, marker)
        if ended is not None and marker is not None and not marker.committed:
            yield ended


_OTHER_FILES = (
    names.LEADER_EPOCHS,
    names.PARTITION_METADATA,
    names.RELOCATED,
    names.SCHEDULE,
)


def _is_leftover(name: str) -> bool:
    """Whether a file was about to go, or to be put together, when the process ended."""
    if name.endswith((names.CLEANED, names.SWAP)):
        return names.parse_file_name(name) is not None
    return name.endswith((names.DELETED, names.TEMPORARY))
