"""Cutting the end off a log that is open: a follower whose tail no leader has.

The order matters.  First whatever could bring the tail back goes, for good: the journal's entries
of it, snapshots behind the cut, and a recovery point past it.  Only then the tail itself.  A crash
in between leaves a log that recovery verifies from before the cut, and that is cut again when its
leader says so.
"""

from contextlib import suppress

from waystation.model.offsets import Offset
from waystation.storage import names
from waystation.storage.log import Log
from waystation.storage.producer_state import ProducerStates
from waystation.storage.segment import Segment
from waystation.storage.snapshots import decode_snapshot
from waystation.storage.walk import BrokenBatchError, marker_at, verify


def truncate_to(log: Log, offset: Offset) -> None:
    """Cut everything from the batch on that holds ``offset``, or ends behind it."""
    log.check_online()
    if offset >= log.log_end:
        return
    if offset < log.segments[0].base_offset:
        start_at(log, offset)
        return
    _stop_vouching(log, offset)
    kept = [one for one in log.segments if one.base_offset < offset] or log.segments[:1]
    for segment in reversed(log.segments[len(kept) :]):
        _remove(log, segment)
    last = kept[-1]
    step = last.find(offset)
    if step is not None:
        # Where compaction left a gap, the next batch begins behind the offset.
        last.cut(step.position, min(step.header.base_offset, offset))
    for segment in (*log.retired, *kept):
        if segment is last or segment.next_offset > log.flushed_end:
            segment.file().datasync()
    log.directory.disk.sync_directory(log.path)
    log.epochs.truncate_to(last.next_offset)
    log.replace_segments(kept, last.next_offset)
    log.producers = _producers(log)


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
    log.replace_segments([fresh], offset)


def _stop_vouching(log: Log, offset: Offset) -> None:
    log.directory.void_journal(log, offset)
    for snapshot in log.snapshots:
        if snapshot > offset:
            log.directory.disk.unlink(log.snapshot_path(snapshot))
    log.snapshots = [one for one in log.snapshots if one <= offset]
    log.directory.disk.sync_directory(log.path)
    if log.recovery_point > offset:
        log.recovery_point = max(offset, Offset(0))
        log.directory.write_marks(log)
    if log.clean_end > offset:
        log.clean_end = max(offset, Offset(0))
        log.directory.write_clean_ends()


def _remove(log: Log, segment: Segment) -> None:
    segment.release()
    for suffix in (names.LOG, *names.INDEXES):
        log.directory.disk.unlink(log.path / names.file_name(segment.base_offset, suffix))


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
    with suppress(BrokenBatchError):
        for step in verify(segment.file(), start, segment.size_bytes):
            if step.header.base_offset >= since:
                states.replay(step.header, marker_at(segment.file(), step))
