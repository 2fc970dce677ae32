"""One partition's log: segments in order, of which the last is written to.

1. Offsets have no gaps where nothing was compacted, and never repeat.
2. ``flushed_end`` is the end of what survives a crash; it moves only after the disk said so.
3. ``recovery_point`` never passes it: what recovery may skip is safe, and so are its indexes.
4. A read gives whole batches, and never one at or past the end it was given.
5. A full disk refuses a batch and nothing else; after any other error of the disk, which leaves
   the log in doubt, its whole directory is offline.

A log belongs to the loop's thread; only tickets (``tickets.py``) are for others.  Opening is in
``recovery.py``, finding batches in ``reader.py``, growing old in ``retention.py``, cutting in
``truncation.py``, compacting in ``compaction.py``, checkpoints in ``checkpointing.py``; what is
around a log in ``surroundings.py``.
"""

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from waystation.model.errors import CorruptBatchError, OffsetOutOfRangeError, StorageError
from waystation.model.ids import LeaderEpoch, TopicId, TopicPartition
from waystation.model.offsets import NO_TIMESTAMP, Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.control import Marker, read_marker
from waystation.records.header import ONCE, BatchHeader, check, peek, stamp
from waystation.records.once import entries_of
from waystation.replication.epochs import EpochEnd
from waystation.storage import names
from waystation.storage.reader import LogSlice, Reader
from waystation.storage.segment import Segment
from waystation.storage.snapshots import encode_snapshot
from waystation.storage.surroundings import Appended, Home, Opened, Pending
from waystation.storage.tickets import (
    NO_DESCRIPTORS,
    NO_SPACE,
    FlushTicket,
    Snapshot,
    Unsaved,
)
from waystation.storage.txn_index import AbortedTxn
from waystation.storage.unstable import EndedTransaction

if TYPE_CHECKING:
    from waystation.storage.truncation import CutPlan

__all__ = ["FlushTicket", "Log", "LogSlice"]

_INT32_MAX = (1 << 31) - 1
_WRITE_BACK_BYTES = 1 << 20


class Log:
    """The segments of one partition, oldest first; the last one is active."""

    __slots__ = (
        "__weakref__",
        "_bases",
        "_cuts",
        "_jitter_share",
        "_names_changed",
        "_reader",
        "_unsynced",
        "_written_back",
        "active",
        "checkpointed_bytes",
        "clean_end",
        "cutting",
        "damage",
        "directory",
        "dirty_since",
        "epochs",
        "flushed_bytes",
        "flushed_end",
        "log_end",
        "log_start",
        "name",
        "once",
        "once_files",
        "path",
        "plain_from",
        "producers",
        "recovery_point",
        "retired",
        "segments",
        "settings",
        "size_bytes",
        "snapshots",
        "swap",
        "topic_id",
        "unsaved",
        "written_bytes",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        home: Home,
        path: Path,
        settings: TopicSettings,
        opened: Opened,
        jitter_share: float = 0.0,
    ) -> None:
        """Everything before ``log_end`` is on disk: recovery, or a clean end, saw to that."""
        self.name = name
        self.topic_id = topic_id
        self.directory = home
        self.path = path
        self.settings = settings
        self.segments = opened.segments
        self.active = opened.segments[-1]
        self.log_start = opened.log_start
        self.log_end = self.flushed_end = opened.log_end
        self.recovery_point = opened.recovery_point
        self.epochs = opened.epochs
        self.producers = opened.producers
        self.snapshots = opened.snapshots
        self.damage = opened.damage
        self.size_bytes = sum(one.size_bytes for one in opened.segments)
        self.retired = opened.retired
        self.clean_end = opened.clean_end
        self.once, self.once_files = opened.once, opened.once_files
        self.swap: Pending | None = None
        self.dirty_since: Millis | None = None
        self.written_bytes = self.flushed_bytes = opened.tail_bytes
        self.checkpointed_bytes = 0
        self._bases = [one.base_offset for one in opened.segments]
        self._reader = Reader(self.segments, self._bases)
        self._unsynced: list[Segment] = []
        self.unsaved = Unsaved(opened.epochs_changed)
        # The process before may have been killed between making a file and syncing its name.
        self._names_changed = True
        self._cuts = 0
        self.cutting = Lock()
        self._written_back = self.active.size_bytes
        self._jitter_share = jitter_share
        self.plain_from = opened.log_end
        """From here on every offset is known to have a record: no marker, and nothing compacted."""

    def __repr__(self) -> str:
        return f"Log({self.name}, [{self.log_start}, {self.log_end}))"

    @property
    def unflushed_bytes(self) -> int:
        """What was written since the last flush began."""
        return self.written_bytes - self.flushed_bytes

    @property
    def unchecked_bytes(self) -> int:
        """What recovery would have to verify after a crash now, about."""
        return self.written_bytes - self.checkpointed_bytes

    def check_online(self) -> None:
        """Raise if the directory is offline."""
        if self.directory.offline is not None:
            raise StorageError(
                f"{self.name}: {self.directory.path} is offline: {self.directory.offline}"
            )

    def fail(self, error: StorageError) -> None:
        """The disk failed in a way that leaves this log in doubt, unless it was deleted."""
        if self.directory.holds(self):
            self.directory.fail(str(error))

    # --- writing ------------------------------------------------------------------------

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        leader_epoch: LeaderEpoch,
        now: Millis,
        *,
        may_begin: bool = True,
    ) -> Appended:
        """The leader's append: give the batch its offsets and write it.

        A batch that its producer repeats is not written again; the answer says where it is.
        Without ``may_begin`` it may go on with a transaction, but not open one.

        HOT: once per batch (benchmarks/storage/append.py).  ``batch`` is stamped in place.
        """
        if self.directory.offline is not None:
            self.check_online()
        idempotent = header.producer_id >= 0
        if idempotent:
            known = self.producers.check(header, may_begin=may_begin)
            if known is not None:
                return Appended(known.base_offset, known.last_offset, known.timestamp, True)
        base = self.log_end
        last = Offset(base + header.last_offset_delta)
        stamp(batch, 0, base, leader_epoch)
        self._write(batch, header, last, now)
        if self.epochs.assign(leader_epoch, base):
            self.unsaved.epochs_changed = True
        if idempotent:
            self.producers.note(header, base, now)
        return Appended(base, last, now)

    def append_once(
        self, batch: memoryview, header: BatchHeader, leader_epoch: LeaderEpoch, now: Millis
    ) -> Appended:
        """Append a batch whose records have idempotency keys, and remember them."""
        appended = self.append(batch, header, leader_epoch, now)
        self.once.note(entries_of(batch))
        return appended

    def forget_keys(self, now: Millis) -> None:
        """Remember idempotency keys no longer than the topic says; to be called again and again."""
        before = Millis(now - self.settings.idempotency_window_ms)
        self.once.expire(before)
        self.once.let_go(self.once_files.written_to)
        self.once_files.forgotten = before

    def append_marker(
        self, batch: memoryview, marker: Marker, leader_epoch: LeaderEpoch, now: Millis
    ) -> Appended:
        """Let ``batch``, which ``marker_batch`` made, end the producer's transaction here.

        One that ends nothing is written too: from then on its epochs fence older ones.
        """
        self.check_online()
        self.producers.check_marker(marker)
        base = self.log_end
        stamp(batch, 0, base, leader_epoch)
        header = peek(batch)
        self._write(batch, header, base, now)
        if self.epochs.assign(leader_epoch, base):
            self.unsaved.epochs_changed = True
        self._note_end(self.producers.end(marker, base, header.max_timestamp, now), marker)
        self.plain_from = self.log_end
        return Appended(base, base, now)

    def _note_end(self, ended: EndedTransaction | None, marker: Marker | None) -> None:
        """The marker, which was written last, may have aborted a transaction."""
        if ended is None or marker is None or marker.committed:
            return
        if self.active.txn_index is None:
            # A checkpoint must not vouch for a file whose name a crash may take.
            self.unsaved.new_names = True
            self._reader.forget_aborting()
        self.active.note_aborted(ended)

    def append_replicated(self, batch: memoryview, now: Millis) -> BatchHeader:
        """A follower's append: one batch as its leader has it, with offsets and epoch.

        Neither may repeat or go back; there may be a gap, where the leader's log was compacted.
        What is not whole, or cannot follow, is refused.

        HOT: once per batch replicated.
        """
        if self.directory.offline is not None:
            self.check_online()
        header = check(batch)
        base, epoch = header.base_offset, header.partition_leader_epoch
        if base < self.log_end or epoch < self.epochs.latest or header.size_bytes != len(batch):
            raise CorruptBatchError(
                f"{self.name}: {len(batch)} bytes with a batch of {header.size_bytes}, offset "
                f"{base} and leader epoch {epoch}, cannot follow the end {self.log_end} of epoch "
                f"{self.epochs.latest}"
            )
        # A batch without records, from a compacted leader, says nothing about time.
        dated = header if header.records_count else header._replace(max_timestamp=NO_TIMESTAMP)
        is_plain = base == self.log_end and header.records_count == header.last_offset_delta + 1
        self._write(batch, dated, header.last_offset, now)
        if not is_plain or header.is_control:
            self.plain_from = self.log_end
        if epoch >= 0 and self.epochs.assign(epoch, base):
            self.unsaved.epochs_changed = True
        marker = read_marker(batch) if header.is_control else None
        self._note_end(self.producers.replay(header, marker, now), marker)
        if header.attributes & ONCE:
            self.once.note(entries_of(batch))
        return header

    def _write(self, batch: memoryview, header: BatchHeader, last: Offset, now: Millis) -> None:
        if self.directory.reserve.spent:
            raise self._full()
        segment, settings, nbytes = self.active, self.settings, len(batch)
        size_bytes = segment.size_bytes + nbytes
        if (
            size_bytes > settings.segment_bytes
            or last - segment.base_offset > _INT32_MAX
            or segment.index_bytes >= settings.segment_index_bytes
        ) and segment.size_bytes:
            segment = self.roll()
            size_bytes = nbytes
        if not segment.size_bytes:
            segment.created_at = now
        try:
            segment.append(batch, nbytes, last, header.max_timestamp, settings.index_interval_bytes)
        except OSError as error:
            raise self._append_failed(error) from error
        self.log_end = end = Offset(last + 1)
        self._reader.ends.append((end, segment, size_bytes))
        self.size_bytes += nbytes
        self.written_bytes += nbytes
        if self.dirty_since is None:
            self.dirty_since = now
        if size_bytes - self._written_back >= _WRITE_BACK_BYTES:
            self._write_back(segment)

    def _append_failed(self, error: OSError) -> StorageError:
        """Take back what was written of the batch; if that fails too the log is in doubt."""
        segment = self.active
        try:
            if error.errno not in NO_DESCRIPTORS:
                segment.file().truncate(segment.size_bytes)
        except OSError as second:
            return self.failed(second, "cut back")
        return self.failed(error, "write to")

    def failed(self, error: OSError, what: str) -> StorageError:
        """A full disk or process refuses; anything else takes the directory offline."""
        if error.errno in NO_SPACE:
            return self._full()
        if error.errno in NO_DESCRIPTORS:
            return StorageError(
                f"cannot {what} {self.path}: too many open files; raise the limit (ulimit -n)"
            )
        failure = StorageError(f"cannot {what} {self.path}: {error.strerror or error}")
        self.fail(failure)
        return failure

    def _full(self) -> StorageError:
        home = self.directory
        return StorageError(
            f"{home.path} is full ({home.disk.free_bytes(home.path)} bytes free), so "
            f"{self.name} takes no more: free some space, or lower the topics' retention"
        )

    def _write_back(self, segment: Segment) -> None:
        """Dirty pages past the kernel's limit would block the loop: begin with them early."""
        start, self._written_back = self._written_back, segment.size_bytes
        self.directory.write_back(segment.file(), start, segment.size_bytes - start)

    # --- rolling ------------------------------------------------------------------------

    def maybe_roll(self, now: Millis) -> bool:
        """Close the active segment if it is older than ``segment.ms``, or must be compacted."""
        segment = self.active
        if segment.size_bytes == 0 or self.directory.offline is not None:
            return False
        if segment.created_at == NO_TIMESTAMP:
            first = segment.first_timestamp
            segment.created_at = Millis(min(first, now)) if first >= 0 else now
        jitter_ms = self._jitter_share * self.settings.segment_jitter_ms
        if now - segment.created_at < self.settings.roll_ms - jitter_ms:
            return False
        self.roll()
        return True

    def roll(self) -> Segment:
        """Close the active segment and begin another at the log's end, which is returned."""
        closed = self.active
        try:
            closed.finish()
            fresh = Segment.create(self.directory.files, self.path, self.log_end)
        except OSError as error:
            raise self.failed(error, "roll") from error
        self._unsynced.append(closed)
        self.unsaved.snapshots.append(self.snapshot())
        self.segments.append(fresh)
        self._bases.append(fresh.base_offset)
        self.active = fresh
        self._names_changed = self.unsaved.new_names = True
        self._written_back = 0
        return fresh

    def snapshot(self) -> Snapshot:
        """The producers as they are at the log's end."""
        return Snapshot(self.log_end, encode_snapshot(self.producers.active()))

    # --- syncing ------------------------------------------------------------------------

    def begin_flush(self) -> FlushTicket | None:
        """What a thread must sync so that everything appended so far is safe."""
        if self.flushed_end >= self.log_end:
            return None
        folder = self.path if self._names_changed else None
        # Retired ones too: until the new start is written down the log begins with them.
        unsynced = [one for one in self._unsynced if one.next_offset > self.recovery_point]
        segments = [*unsynced, self.active]
        self._unsynced = []
        self._names_changed = False
        self.dirty_since = None
        self.flushed_bytes = self.written_bytes
        return FlushTicket(self, self.directory.disk, folder, segments, self._cuts)

    def finish_flush(self, ticket: FlushTicket) -> None:
        """The ticket's sync succeeded; it counts unless the log was cut meanwhile."""
        if ticket.cuts != self._cuts or self.directory.offline is not None:
            return
        if ticket.end > self.flushed_end:
            self.flushed_end = ticket.end
            self.remember_end(ticket.end)
        for segment in ticket.segments:
            if segment is not self.active or ticket.end == self.log_end:
                segment.log.pinned = False

    def remember_end(self, safe_end: Offset) -> None:
        """Readers stop at what is safe, in these files or in the journal: let them find it."""
        self._reader.remember_safe(safe_end)

    def snapshot_path(self, offset: Offset) -> Path:
        """The snapshot of producers as they were before ``offset``."""
        return self.path / names.file_name(offset, names.SNAPSHOT)

    # --- reading ------------------------------------------------------------------------

    def read(
        self, offset: Offset, max_bytes: int, upto: Offset, at_least_one: bool = True
    ) -> LogSlice:
        """Whole batches from the one that holds ``offset``, all before ``upto``.

        HOT: once per partition of a fetch (benchmarks/storage/read.py).
        """
        if self.directory.offline is not None:
            self.check_online()
        if offset < self.log_start or offset > self.log_end:
            raise OffsetOutOfRangeError(offset, self.log_start, self.log_end)
        if offset >= upto or offset == self.log_end:
            return LogSlice(None, offset)
        try:
            return self._reader.read(offset, max_bytes, upto, at_least_one)
        except OSError as error:
            raise self.failed(error, "read") from error

    def shorten(self, found: LogSlice, last: Offset) -> LogSlice:
        """What ``read`` gave, without the batches behind the one that holds ``last``.

        Only where every offset has a record: see ``plain_from``.
        """
        try:
            return self._reader.shorten(found, last)
        except OSError as error:
            raise self.failed(error, "read") from error

    def find_by_time(self, timestamp: Millis) -> tuple[Offset, Millis] | None:
        """The first record at or after ``timestamp``, in the order of offsets."""
        self.check_online()
        try:
            return self._reader.find_by_time(timestamp, self.log_start)
        except OSError as error:
            raise self.failed(error, "read") from error

    def max_timestamp(self) -> tuple[Offset, Millis] | None:
        """The record with the greatest timestamp; the first of several."""
        self.check_online()
        try:
            return self._reader.max_timestamp()
        except OSError as error:
            raise self.failed(error, "read") from error

    def last_stable(self, high_watermark: Offset) -> Offset:
        """The end of what is committed, and in no transaction whose outcome is not.

        HOT: once per move of the high watermark where transactions are.
        """
        first = self.producers.unstable.first(high_watermark)
        return high_watermark if first is None else min(high_watermark, max(first, self.log_start))

    def aborted(self, start: Offset, end: Offset) -> list[AbortedTxn]:
        """The aborted transactions that reach into ``[start, end)``, by their markers.

        HOT: once per partition of a fetch of committed records that has something to read.
        """
        try:
            return self._reader.aborted(start, end)
        except OSError as error:
            raise self.failed(error, "read") from error

    def epoch_end(self, epoch: LeaderEpoch) -> EpochEnd:
        """Where an epoch ends in this log."""
        return self.epochs.end_of(epoch, self.log_end)

    # --- changing -----------------------------------------------------------------------

    def advance_log_start(self, offset: Offset) -> None:
        """Let the log begin at ``offset``; segments wholly before it are retired.

        Their files go when the directory drops them, after the new start was written down.
        """
        if offset <= self.log_start:
            return
        assert offset <= self.log_end, f"{self.name}: start {offset} past {self.log_end}"
        self.log_start = offset
        if self.epochs.advance_start(offset):
            self.unsaved.epochs_changed = True
        count = 0
        while count < len(self.segments) - 1 and self._bases[count + 1] <= offset:
            self.size_bytes -= self.segments[count].size_bytes
            count += 1
        if count:
            self.retired += self.segments[:count]
            del self.segments[:count]
            del self._bases[:count]
            self._reader.forget()

    @property
    def cuts(self) -> int:
        """Grows whenever the log is cut or deleted, so that others notice."""
        return self._cuts

    def invalidate_tickets(self) -> None:
        """The log is cut or deleted: whatever threads still do for it no longer counts."""
        self._cuts += 1

    def replace_segments(self, segments: list[Segment], log_end: Offset) -> None:
        """The log was cut: it now consists of ``segments`` and ends at ``log_end``, synced."""
        self.invalidate_tickets()
        self.segments[:] = segments
        self._bases[:] = [one.base_offset for one in segments]
        self.active = segments[-1]
        self._reader.forget()
        self._unsynced, self.unsaved = [], Unsaved(epochs_changed=True)
        self.log_end = self.flushed_end = log_end
        self.log_start = min(max(self.log_start, self._bases[0]), log_end)
        self.size_bytes = sum(one.size_bytes for one in segments)
        self._written_back = self.active.size_bytes
        self._names_changed = False
        self.dirty_since = None

    def replace_compacted(self, old: list[Segment], fresh: Segment) -> bool:
        """Let ``fresh`` stand where ``old`` stood; false if the log holds them no more."""
        at = self.segments.index(old[0]) if old[0] in self.segments else 0
        if self.segments[at : at + len(old)] != old or self.active in old:
            return False
        self.segments[at : at + len(old)] = [fresh]
        self._bases[at : at + len(old)] = [fresh.base_offset]
        self.size_bytes += fresh.size_bytes - sum(one.size_bytes for one in old)
        self._reader.forget_segments(old)
        self.plain_from = self.log_end
        return True

    def reconfigure(self, settings: TopicSettings) -> None:
        """Obey new settings from the next append on."""
        self.settings = settings

    def inherit(self, other: "Log") -> None:
        """Take over what cannot be made anew from the batches of ``other``, which is given up."""
        assert self.log_end == other.log_end, f"{self} is no copy of {other}"
        self.producers, self.epochs = other.producers, other.epochs
        self.once = other.once.copied()
        self.once_files.clear()
        self.unsaved.epochs_changed = True

    def truncate_to(self, offset: Offset, plan: "CutPlan | None" = None) -> None:
        """Cut everything from ``offset`` on: a follower's tail that no leader has.

        A ``plan`` that was worked out before saves time (``truncation.py``).
        """
        from waystation.storage.truncation import truncate_to

        with self.cutting:
            self._finish_swap()
            truncate_to(self, offset, plan)

    def start_at(self, offset: Offset) -> None:
        """Drop everything and begin anew at ``offset``."""
        from waystation.storage.truncation import start_at

        with self.cutting:
            self._finish_swap()
            start_at(self, offset)

    def _finish_swap(self) -> None:
        """What is under way could come back behind the back of whoever cuts the log."""
        if self.swap is not None:
            self.swap.finish()
