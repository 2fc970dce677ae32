"""Checkpoints of a log: from then on recovery begins at the end that the log had.

1. Nothing vouches for what is not synced: see ``CheckpointTicket``.
2. A checkpoint that finds no space has harmed nothing; the next one does what it was to do.
3. A log that was cut or deleted meanwhile gets neither a snapshot nor a recovery point.

The loop begins a checkpoint, any thread carries it out.  Which logs are worth one is decided in
``directory.py``; what recovery makes of it is in ``recovery.py``.
"""

from waystation.storage.checkpoints import encode_epochs
from waystation.storage.log import Log
from waystation.storage.once_files import OnceChunk
from waystation.storage.tickets import NO_SPACE, CheckpointTicket
from waystation.telemetry.logs import get_logger

__all__ = ["abandon", "begin", "carry_out", "is_needed"]

_events = get_logger("storage")


def is_needed(log: Log) -> bool:
    """Whether a crash now would leave recovery something to do."""
    return log.recovery_point < log.log_end or log.unsaved.epochs_changed


def begin(log: Log) -> CheckpointTicket | None:
    """What a thread must do so that recovery begins at the present end of the log."""
    if not is_needed(log):
        return None
    try:
        ticket = _ticket(log)
    except OSError as error:
        if error.errno in NO_SPACE and log.directory.reserve.spend():
            return begin(log)
        failure = log.failed(error, "checkpoint")
        _events.warning("checkpoint.skipped", partition=str(log.name), reason=str(failure))
        return None
    log.unsaved.snapshots = []
    log.unsaved.epochs_changed = log.unsaved.new_names = False
    log.checkpointed_bytes = log.written_bytes
    return ticket


def _ticket(log: Log) -> CheckpointTicket:
    everything = (*log.retired, *log.segments)
    unchecked = [one for one in everything if one.next_offset > log.recovery_point]
    for segment in unchecked:
        segment.save_indexes()
    unsaved = log.unsaved
    return CheckpointTicket(
        log.directory.disk,
        log.path,
        unchecked,
        [*unsaved.snapshots, log.snapshot()],
        epochs=encode_epochs(log.epochs.entries) if unsaved.epochs_changed else None,
        new_names=unsaved.new_names,
        cuts=log.cuts,
        once=_fresh_keys(log),
        once_files=log.once_files,
    )


def _fresh_keys(log: Log) -> OnceChunk:
    written_to = log.once_files.written_to
    return OnceChunk(written_to, log.log_end, log.once.take_fresh(written_to, log.log_end))


def carry_out(log: Log, ticket: CheckpointTicket) -> None:
    """Do what a checkpoint takes, unless the log was cut or deleted meanwhile.  Any thread.

    Older snapshots may go afterwards, but one per segment stays.  Nothing of what is changed here
    is changed elsewhere but under the same lock: a snapshot must never appear behind the back of
    whoever cuts the log.
    """
    with log.cutting:
        if ticket.cuts != log.cuts:
            return
        ticket.sync()
        log.recovery_point = ticket.end
        for sync in ticket.indexes:
            sync.owner.finish_sync(sync)
        _thin_out_snapshots(log, ticket)
        log.once_files.drop_forgotten()


def _thin_out_snapshots(log: Log, ticket: CheckpointTicket) -> None:
    kept = {ticket.end, *(one.base_offset for one in list(log.segments))}
    written = dict.fromkeys([*log.snapshots, *(one.offset for one in ticket.snapshots)])
    for offset in written:
        if offset not in kept:
            log.directory.disk.unlink(log.snapshot_path(offset))
    log.snapshots = [offset for offset in written if offset in kept]


def abandon(log: Log, ticket: CheckpointTicket) -> None:
    """There was no space for it; the next one does what it was to do."""
    unsaved = log.unsaved
    unsaved.epochs_changed = unsaved.epochs_changed or ticket.epochs is not None
    unsaved.new_names = unsaved.new_names or ticket.new_names
    log.checkpointed_bytes = 0
