"""Cutting the end off a log that is open: a follower whose tail no leader has.

The order matters.  First whatever could bring the tail back goes, for good: the journal's entries
of it, snapshots and idempotency keys behind the cut, and a recovery point past it.  Only then the
tail itself.  A crash in between leaves a log that recovery verifies from before the cut, and that
is cut again when its leader says so.

The loop waits for a cut: nobody may see a log between two of its states.  What takes long is
therefore done before or after.  Which producers are known then, for which up to a segment must be
read, is worked out in a thread by a ``CutPlan``; what is kept should be synced already; and files
are renamed, to be removed by whoever purges the directory.  What is left are a few syncs of small
files.
"""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from waystation.model.offsets import Millis, Offset
from waystation.runtime.regions import ReadableFile
from waystation.storage.log import Log
from waystation.storage.once_window import OnceWindow
from waystation.storage.producer_state import ProducerStates
from waystation.storage.segment import Segment
from waystation.storage.snapshots import decode_snapshot
from waystation.storage.walk import BrokenBatchError, marker_at, verify

_AT_ONCE = Millis(0)


class _Piece(NamedTuple):
    """The batches of a segment that count, as positions in its file."""

    path: Path
    start: int
    end: int
    retired: bool


class CutPlan:
    """What a log knows of its producers once it is cut at ``offset``; made in the loop.

    ``work`` may run in any thread: it opens the files anew, and what became of the log meanwhile
    is found out by ``suits``.
    """

    def __init__(self, log: Log, offset: Offset) -> None:
        self.offset = offset
        self.producers: ProducerStates | None = None
        self._disk, self._of = log.directory.disk, _state(log)
        self._since = max((one for one in log.snapshots if one <= offset), default=None)
        self._snapshot = None if self._since is None else log.snapshot_path(self._since)
        self._pieces = [_piece(log, one, self._since or Offset(0), True) for one in log.retired]
        for segment in log.segments:
            if segment.base_offset < offset:
                self._pieces.append(_piece(log, segment, self._since or Offset(0), False))
        if log.segments and self._pieces:
            last = [one for one in log.segments if one.base_offset < offset]
            step = last[-1].find(offset) if last else None
            if step is not None:
                self._pieces[-1] = self._pieces[-1]._replace(end=step.position)

    @property
    def size_bytes(self) -> int:
        """How much has to be read."""
        return sum(max(one.end - one.start, 0) for one in self._pieces)

    def work(self) -> None:
        """Read what has to be read; if that cannot be done, the cut does it itself."""
        with suppress(OSError, ValueError):
            self.producers = self._worked_out()

    def suits(self, log: Log) -> bool:
        """Whether the log is still as it was when this was made."""
        return self._of == _state(log)

    def _worked_out(self) -> ProducerStates:
        states, since = ProducerStates(), self._since or Offset(0)
        if self._snapshot is not None:
            states = ProducerStates(decode_snapshot(self._disk.read(self._snapshot)))
        for piece in self._pieces:
            if piece.end > piece.start:
                file = self._disk.open(piece.path)
                try:
                    _replay_file(file, piece.start, piece.end, since, states)
                finally:
                    file.close()
            if piece.retired:
                states.forget_transactions()
        return states


def _state(log: Log) -> tuple[object, ...]:
    return (log.cuts, log.log_end, tuple(log.snapshots), *map(id, (*log.retired, *log.segments)))


def _piece(log: Log, segment: Segment, since: Offset, retired: bool) -> _Piece:
    path, end = log.path / segment.log.name, segment.size_bytes
    if segment.next_offset <= since:
        return _Piece(path, end, end, retired=False)
    start = segment.offset_index.before(since - segment.base_offset)
    return _Piece(path, start, end, retired)


def truncate_to(log: Log, offset: Offset, plan: CutPlan | None = None) -> None:
    """Cut everything from the batch on that holds ``offset``, or ends behind it."""
    log.check_online()
    if offset >= log.log_end:
        return
    if offset < log.segments[0].base_offset:
        start_at(log, offset)
        return
    fits = plan is not None and plan.offset == offset and plan.suits(log)
    known = plan.producers if plan is not None and fits else None
    kept = [one for one in log.segments if one.base_offset < offset] or log.segments[:1]
    last = kept[-1]
    step = last.find(offset)
    # A batch that holds the offset goes as a whole: nothing may vouch for its first part.
    _stop_vouching(log, min(offset, last.next_offset if step is None else step.header.base_offset))
    for segment in reversed(log.segments[len(kept) :]):
        _remove(log, segment)
    if step is not None:
        # Where compaction left a gap, the next batch begins behind the offset.
        ends_at = min(step.header.base_offset, offset)
        if step.position or last.base_offset == ends_at:
            last.cut(step.position, ends_at)
        else:
            kept[-1] = last = _begun_anew(log, last, ends_at)
    for segment in (*log.retired, *kept):
        if segment is last or segment.next_offset > log.flushed_end:
            segment.file().datasync()
    log.directory.disk.sync_directory(log.path)
    log.epochs.truncate_to(last.next_offset)
    log.replace_segments(kept, last.next_offset)
    log.producers = _producers(log) if known is None else known
    log.once.cut(last.next_offset)


def _begun_anew(log: Log, segment: Segment, offset: Offset) -> Segment:
    """A segment at ``offset`` instead of one of which nothing is left.

    It would begin before what is vouched for: of a batch that tears there, recovery could not
    tell that nobody vouched for it.
    """
    fresh = Segment.create(log.directory.files, log.path, offset)
    log.directory.disk.sync_directory(log.path)
    _remove(log, segment)
    return fresh


def start_at(log: Log, offset: Offset) -> None:
    """Drop everything and begin anew at ``offset``, with neither epochs nor producers."""
    log.check_online()
    _stop_vouching(log, Offset(-1))
    # From here on recovery makes an empty log at the offset of whatever it finds.
    log.log_start = log.recovery_point = offset
    log.directory.write_marks(log)
    for segment in (*log.retired, *log.segments):
        _remove(log, segment)
    log.retired = []
    fresh = Segment.create(log.directory.files, log.path, offset)
    log.directory.disk.sync_directory(log.path)
    log.epochs.clear()
    log.producers = ProducerStates()
    log.once = OnceWindow()
    log.replace_segments([fresh], offset)


def _stop_vouching(log: Log, offset: Offset) -> None:
    log.directory.void_journal(log, offset)
    for snapshot in log.snapshots:
        if snapshot > offset:
            log.directory.disk.unlink(log.snapshot_path(snapshot))
    log.snapshots = [one for one in log.snapshots if one <= offset]
    log.directory.disk.sync_directory(log.path)
    # Only now: a snapshot that came back would vouch for keys that are gone.
    if log.once_files.cut(offset):
        log.directory.disk.sync_directory(log.path)
    if log.recovery_point > offset:
        log.recovery_point = max(offset, Offset(0))
        log.directory.write_marks(log)
    if log.clean_end > offset:
        log.clean_end = max(offset, Offset(0))
        log.directory.write_clean_ends()


def _remove(log: Log, segment: Segment) -> None:
    """Removing a large file takes long: it loses its name now, and its bytes later."""
    log.directory.drop_files(log, segment, _AT_ONCE)


def _producers(log: Log) -> ProducerStates:
    """From the newest snapshot that is left, and the batches behind it."""
    since, states = Offset(0), ProducerStates()
    for offset in sorted(log.snapshots, reverse=True):
        content = log.directory.disk.read(log.snapshot_path(offset))
        since, states = offset, ProducerStates(decode_snapshot(content))
        break
    for segment in log.retired:
        if segment.next_offset > since:
            _replay(segment, since, states)
            states.forget_transactions()
    for segment in log.segments:
        if segment.next_offset > since:
            _replay(segment, since, states)
    return states


def _replay(segment: Segment, since: Offset, states: ProducerStates) -> None:
    start = segment.offset_index.before(since - segment.base_offset)
    _replay_file(segment.file(), start, segment.size_bytes, since, states)


def _replay_file(
    file: ReadableFile, start: int, end: int, since: Offset, states: ProducerStates
) -> None:
    with suppress(BrokenBatchError):
        for step in verify(file, start, end):
            if step.header.base_offset >= since:
                states.replay(step.header, marker_at(file, step))
