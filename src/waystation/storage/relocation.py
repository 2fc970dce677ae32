"""A log that moves to another data directory of the same node, while it is written and read.

1. The *future* log is filled beside the present one, in a directory of its own name
   (``<topic>-<n>.<unique>-future``).  Nothing counts on it.  A start finds it and the move goes on
   with what it holds, if that is still how the present log begins (``continues``).
2. ``switch`` brings the last of it over, syncs it, gives it its proper name and then, by a file of
   one number (``relocated``), makes it count.  A crash before that leaves the present log, a crash
   after it the future one: where both are found, the higher number wins (``winner``).
3. Producers, transactions and leader epochs are the present log's own, not made anew from what
   the log still holds.

The present log is given up by the caller, once everybody has turned to the new one.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from waystation.model.errors import StorageError, WaystationError
from waystation.model.offsets import Millis, Offset
from waystation.records.header import BatchHeader, batches, peek
from waystation.storage import checkpointing, names
from waystation.storage.directory import DataDirectory
from waystation.storage.identity import encode_partition_metadata
from waystation.storage.log import Log
from waystation.storage.recovery import Marks, open_log

_PENDING = -1


def first_batch(log: Log) -> Offset:
    """Where the log's first batch begins: its start may lie within."""
    found = log.read(log.log_start, 1, log.log_end)
    return (
        log.log_end if found.region is None else peek(memoryview(found.region.read())).base_offset
    )


def begin(log: Log, start: Offset, target: DataDirectory) -> Log:
    """An empty future log in ``target`` that begins at ``start``; work for a thread."""
    path = target.path / names.future_directory_name(log.name, target.new_id())
    try:
        target.forget_namesake(log.name)
        target.disk.make_directory(path)
        target.disk.replace(path / names.RELOCATED, b"%d" % _PENDING)
        metadata = encode_partition_metadata(log.topic_id)
        target.disk.replace(path / names.PARTITION_METADATA, metadata)
        marks = Marks(start, start, clean=False)
        future = open_log(target, log.name, log.topic_id, path, log.settings, marks)
        target.disk.sync_directory(target.path)  # from now on a start finds it
        return future
    except OSError as error:
        target.disk.remove_tree(path)
        raise StorageError(f"cannot move {log.name} to {target.path}: {error}") from error


def reopen(log: Log, path: Path, target: DataDirectory) -> Log:
    """The future log that the last life has left at ``path``; work for a thread.

    What was not synced is verified, and cut where it is torn.
    """
    marks = Marks(Offset(0), Offset(0), clean=False)
    try:
        return open_log(target, log.name, log.topic_id, path, log.settings, marks)
    except (OSError, ValueError) as error:
        target.disk.remove_tree(path)
        raise StorageError(f"{path} cannot be gone on with: {error}") from error


def continues(log: Log, future: Log) -> bool:
    """Whether ``future``, found by a start, holds what ``log`` begins with.

    Its last batch decides: where offset, leader epoch and checksum are the same, so is all before.
    Compaction takes a tombstone away some time after what it deleted; a copy that has the one
    and lacks the other would bring it back, and nobody knows how long ago this one was made.
    """
    if "compact" in log.settings.cleanup_policy:
        return False
    last = Offset(future.log_end - 1)
    if not (future.log_start <= last and log.log_start <= last < log.log_end):
        return False
    return _batch_at(log, last) == _batch_at(future, last)


def _batch_at(log: Log, offset: Offset) -> BatchHeader | None:
    found = log.read(offset, 1, log.log_end)
    return None if found.region is None else peek(memoryview(found.region.read()))


def copy(future: Log, data: bytes, now: Millis) -> None:
    """Append what was read of the present log."""
    view = memoryview(data)
    for at, header in batches(view):
        future.append_replicated(view[at : at + header.size_bytes], now)


def switch(log: Log, future: Log, target: DataDirectory, now: Millis) -> Log:
    """The log to go on with, in ``target``; it holds everything that ``log`` does, on disk.

    Nothing may be appended meanwhile: the loop's thread waits for it, some milliseconds.
    """
    proper = target.path / str(log.name)
    try:
        while future.log_end < log.log_end:
            found = log.read(max(future.log_end, log.log_start), 1 << 20, log.log_end)
            if found.region is None:
                raise StorageError(f"{log} has nothing at {future.log_end}")
            copy(future, found.region.read(), now)
        future.inherit(log)
        future.advance_log_start(min(log.log_start, future.log_end))
        settle(future)
        _release(future)
        target.disk.rename(future.path, proper)
        target.disk.sync_directory(target.path)
        marks = Marks(future.log_end, future.log_start, clean=True)
        moved = open_log(target, log.name, log.topic_id, proper, log.settings, marks)
        _check(log, moved)
        target.logs[log.name] = moved
        target.write_marks(moved)
        target.disk.replace(proper / names.RELOCATED, b"%d" % (generation_of(log) + 1))
    except (OSError, WaystationError, ValueError) as error:
        target.logs.pop(log.name, None)
        target.disk.remove_tree(proper)
        target.disk.remove_tree(future.path)
        raise StorageError(f"cannot move {log.name} to {target.path}: {error}") from error
    return moved


def settle(future: Log) -> None:
    """Let recovery have nothing to do; any thread, while nothing is appended."""
    ticket = future.begin_flush()
    if ticket is not None:
        ticket.sync()
        future.finish_flush(ticket)
    checkpoint = checkpointing.begin(future)
    if checkpoint is not None:
        checkpointing.carry_out(future, checkpoint)


def leave(future: Log) -> None:
    """Let go of a future log that the next start finds; any thread."""
    with suppress(OSError):  # what is not synced is verified then
        settle(future)
    _release(future)


def discard(future: Log) -> None:
    """Forget a future log with all that was copied; any thread."""
    _release(future)
    future.directory.disk.remove_tree(future.path)


def _release(future: Log) -> None:
    for segment in (*future.retired, *future.segments):
        segment.release()


def winner(logs: Sequence[Log]) -> Log:
    """The one that counts of several of one partition; a crash interrupted its move."""
    best = max(logs, key=generation_of)
    for other in logs:
        if generation_of(other) >= 0 and other.log_start > best.log_start:
            best.advance_log_start(min(other.log_start, best.log_end))
    return best


def generation_of(log: Log) -> int:
    """How often the log was moved; less than that if it never got so far as to count."""
    content = b"0"
    with suppress(FileNotFoundError):
        content = log.directory.disk.read(log.path / names.RELOCATED)
    return int(content)


def _check(log: Log, moved: Log) -> None:
    found = (moved.log_start, moved.log_end)
    wanted: tuple[Offset, Offset] = (log.log_start, log.log_end)
    if found != wanted:
        raise ValueError(f"the copy holds {found}, the log {wanted}")
