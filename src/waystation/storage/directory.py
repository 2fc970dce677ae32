"""One data directory: its lock, its identity, its checkpoints, and the logs in it.

1. One process at a time; another is told who holds it.
2. Checkpoints never say more than is true: a recovery point is written after what it covers was
   synced, a log's start before the files below it go.
3. After a clean close the next start scans nothing; a marker says so, and is gone while open.
4. When the disk fails the directory is offline: everything in it refuses, the rest of the node
   goes on.
5. When the disk is full, what frees space can still be done: see ``reserve.py``.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from uuid import UUID

import msgspec

from waystation.model.errors import StorageError
from waystation.model.ids import NO_BROKER_EPOCH, BrokerEpoch, NodeId, TopicId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.runtime.chance import Chance, SystemChance
from waystation.storage import checkpointing, journal_replay, names
from waystation.storage.checkpoints import (
    CLEAN_ENDS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_offsets,
    write_offsets,
)
from waystation.storage.disk import Disk, DiskFile, Entry
from waystation.storage.identity import (
    META_PROPERTIES,
    Identity,
    claim,
    decode_partition_metadata,
    encode_partition_metadata,
    write,
)
from waystation.storage.journal import FOLDER, Journal
from waystation.storage.log import Log
from waystation.storage.open_files import OpenFiles
from waystation.storage.recovery import Marks, new_log, open_log
from waystation.storage.reserve import Reserve
from waystation.storage.segment import Segment
from waystation.storage.settings import StorageSettings
from waystation.storage.tickets import NO_DESCRIPTORS, NO_SPACE, CheckpointTicket
from waystation.storage.unfinished import Unfinished, unfinished_at
from waystation.storage.writeback import Writeback
from waystation.telemetry.logs import get_logger

_LOCK = ".lock"
_CLEAN = ".kafka_cleanshutdown"
_CLOSING_THREADS = 8
# A log with a small tail is left out of this many checkpoints in a row.
_ROUNDS_MAX = 12
_LOGS_PER_CHECKPOINT = 100
# Each may make two files, which takes the loop 50 µs to 1 ms.
_LOGS_PER_STEP = 4

_events = get_logger("storage")
Work = Callable[[], None]


class DataDirectory:
    """Everything but what its plans return belongs to one thread at a time."""

    def __init__(
        self,
        path: Path,
        disk: Disk,
        settings: StorageSettings,
        node: NodeId,
        chance: Chance | None = None,
    ) -> None:
        """Take the directory over, or say why not."""
        self.path = path
        self.disk = disk
        self._chance = chance or SystemChance()
        self.files = OpenFiles(disk, settings.open_files_max)
        self.offline: str | None = None
        self.logs: dict[TopicPartition, Log] = {}
        self.unfinished: list[Unfinished] = []
        """Moves that were found when logs were opened, for whoever goes on with them."""
        self.producer_expiration_ms = settings.producer_id_expiration_ms
        self._recovery_bytes_max = settings.recovery_bytes_max
        self._recovery_threads = settings.num_recovery_threads_per_data_dir
        self.reserve = Reserve(disk, path, settings.disk_reserve_bytes)
        self.journal: Journal | None = None
        """Where small batches of these logs go first; ``None`` if there is no such thing."""
        self._writeback = Writeback()
        self._writing = Lock()
        self._going: list[tuple[Millis, Path]] = []
        self._going_lock = Lock()
        self._opened = False
        self._skipped_rounds: dict[TopicPartition, int] = {}
        try:
            disk.make_directory(path)
            disk.sync_directory(path.parent)
            self._lock = disk.lock(path / _LOCK)
        except OSError as error:
            raise StorageError(_not_usable(path, error)) from error
        try:
            self._identity = claim(disk, path, node, self._chance.new_id)
            self.stopped_life = self._take_clean_marker()
            """The registration under which a clean stop was made; ``None`` after any other."""
            self._clean = self.stopped_life is not None
            self.reserve.find()
        except (OSError, StorageError) as error:
            self._lock.release()
            if isinstance(error, StorageError):
                raise
            raise StorageError(_not_usable(path, error)) from error
        self._node = node
        self._written: dict[str, Mapping[TopicPartition, Offset]] = {
            file: read_offsets(disk, path / file)
            for file in (RECOVERY_POINTS, LOG_STARTS, CLEAN_ENDS)
        }

    # --- whose it is ----------------------------------------------------------------------

    @property
    def id(self) -> UUID:
        """The directory's own, for life."""
        return self._identity.id

    @property
    def cluster_id(self) -> str | None:
        """The cluster that these logs belong to; none before the node first joined one."""
        return self._identity.cluster_id

    @property
    def last_life(self) -> BrokerEpoch:
        """The newest registration that this directory, or what it was copied from, was part of."""
        return self._identity.broker_epoch

    def last_life_on(self, machine: str) -> BrokerEpoch:
        """The newest registration that this directory was part of, here on this machine.

        A copy of the directory was part of none: its original may still be.
        """
        here = self._identity.place == self._place(machine)
        return self.last_life if here else NO_BROKER_EPOCH

    def _place(self, machine: str) -> str:
        return f"{machine}:{self.path.absolute()}"

    def joined(self, cluster_id: str, life: BrokerEpoch, machine: str) -> None:
        """Remember the cluster, and the life that begins; work for a thread.

        On a full disk what it had to say before stands: the next life then waits until the store
        has forgotten this one, and what can be read is served meanwhile.
        """
        identity = Identity(self.id, cluster_id, life, self._place(machine))
        try:
            write(self.disk, self.path, self._node, identity)
        except OSError as error:
            if error.errno in NO_SPACE and self.reserve.spend():
                self.joined(cluster_id, life, machine)
            elif error.errno in NO_SPACE and self.cluster_id == cluster_id:
                _events.warning("life.not.written", path=str(self.path), reason=str(error))
            else:
                self.fail(f"cannot write {self.path / META_PROPERTIES}: {error}")
            return
        self._identity = identity

    # --- opening ------------------------------------------------------------------------

    def open_logs(self, settings_of: Callable[[TopicPartition], TopicSettings]) -> list[Log]:
        """Open every log that lies here, several at a time after a crash."""
        self._opened = True
        try:
            found = [one for one in self.disk.entries(self.path) if self._is_log(one)]
        except OSError as error:
            self.fail(f"cannot list {self.path}: {error}")
            return []
        if self._clean or len(found) <= 1:
            opened = [self._open(entry, settings_of) for entry in found]
        else:
            with ThreadPoolExecutor(self._recovery_threads, "recovery") as pool:
                opened = list(pool.map(lambda entry: self._open(entry, settings_of), found))
        self.logs = {log.name: log for log in opened if log is not None}
        return list(self.logs.values())

    def _is_log(self, entry: Entry) -> bool:
        if entry.is_directory and names.is_needless_directory(entry.name):
            self.disk.remove_tree(self.path / entry.name)
            return False
        if entry.is_directory and names.parse_future_directory_name(entry.name) is not None:
            move = unfinished_at(self.disk, self.path / entry.name)
            self.unfinished += [] if move is None else [move]
            return False
        return entry.is_directory and names.parse_directory_name(entry.name) is not None

    def _open(
        self, entry: Entry, settings_of: Callable[[TopicPartition], TopicSettings]
    ) -> Log | None:
        name, path = names.parse_directory_name(entry.name), self.path / entry.name
        assert name is not None, f"{path} is no log"
        try:
            topic_id = self._topic_id(path)
            if topic_id is None:
                return None
            marks = Marks(
                self._written[RECOVERY_POINTS].get(name, Offset(0)),
                self._written[LOG_STARTS].get(name, Offset(0)),
                self._clean,
                self._written[CLEAN_ENDS].get(name, Offset(0)),
            )
            settings = settings_of(name)
            return open_log(self, name, topic_id, path, settings, marks, self._jitter_share())
        except (OSError, ValueError) as error:
            self.fail(f"cannot open {path}: {error}")
            return None

    def _topic_id(self, path: Path) -> TopicId | None:
        """The topic's id; a directory that was made and never finished is removed."""
        try:
            return decode_partition_metadata(self.disk.read(path / names.PARTITION_METADATA))
        except FileNotFoundError:
            if any(one.size_bytes for one in self.disk.entries(path) if not _is_half_made(one)):
                raise ValueError(
                    f"{names.PARTITION_METADATA} is missing, so nobody knows whose records these "
                    "are: restore it, or move the directory away"
                ) from None
        _events.warning("log.unfinished", path=str(path), action="removed")
        self.disk.remove_tree(path)
        return None

    def create_log(self, name: TopicPartition, topic_id: TopicId, settings: TopicSettings) -> Log:
        """Make an empty log; it survives a crash when this returns."""
        path = self.path / str(name)
        try:
            self.forget_namesake(name)
            self.disk.make_directory(path)
            self.disk.replace(path / names.PARTITION_METADATA, encode_partition_metadata(topic_id))
            log = new_log(self, name, topic_id, path, settings, self._jitter_share())
            self.disk.sync_directory(self.path)
        except OSError as error:
            raise StorageError(_not_usable(path, error)) from error
        self.logs[name] = log
        return log

    def forget_namesake(self, name: TopicPartition) -> None:
        """What checkpoints say of a deleted log must not be believed of this one."""
        if any(name in offsets for offsets in self._written.values()):
            with self._writing:
                self._write_offsets(RECOVERY_POINTS, self._recovery_points())
                self._write_offsets(LOG_STARTS, self._starts())
                self._write_offsets(CLEAN_ENDS, self._clean_ends())

    def disown(self, log: Log) -> None:
        """Do nothing more for ``log``, which is about to be deleted.  The loop's thread."""
        if self.holds(log):
            del self.logs[log.name]

    def delete_log(self, log: Log) -> None:
        """Remove a log with all its records; gone for the next start at once."""
        self.disown(log)
        with log.cutting:
            # A checkpoint must not leave anything in the directory of a namesake.
            log.invalidate_tickets()
        doomed = self.path / names.deleted_directory_name(log.name, self._chance.new_id())
        try:
            self.disk.rename(log.path, doomed)
            self.disk.sync_directory(self.path)
            for segment in log.segments:
                segment.release()
            self.disk.remove_tree(doomed)
        except OSError as error:
            self.fail(f"cannot delete {log.path}: {error}")

    def new_id(self) -> UUID:
        """One that nothing else ever had."""
        return self._chance.new_id()

    def _jitter_share(self) -> float:
        """How much of ``segment.jitter.ms`` a log gets, drawn once in its life."""
        return self._chance.below(1_001) / 1_000

    def holds(self, log: Log) -> bool:
        """Whether ``log`` is one of ours, and not deleted meanwhile."""
        return self.logs.get(log.name) is log

    # --- upkeep -------------------------------------------------------------------------

    def fail(self, reason: str) -> None:
        """Go offline; only a restart brings the directory back.  Any thread."""
        if self.offline is None:
            self.offline = reason
            _events.error("directory.offline", path=str(self.path), reason=reason)

    def write_back(self, file: DiskFile, position: int, nbytes: int) -> None:
        """Let the disk begin with bytes that nobody waits for yet."""
        self._writeback.start(file, position, nbytes)

    def checkpoint_steps(self, marks: Mapping[TopicPartition, Offset]) -> Iterator[Work]:
        """Move recovery points to the present ends of logs, as far as that is worth it.

        Each step may be done by any thread, before the next is asked for; there may be any
        time between them.  The last one writes down what all of them moved.
        """
        logs = self._worth_it()
        watermarks = {name: at for name, at in marks.items() if name in self.logs}
        while len(logs) > _LOGS_PER_STEP:
            yield partial(self._carry_out_all, self._begin_checkpoints(logs[:_LOGS_PER_STEP]))
            logs = logs[_LOGS_PER_STEP:]
        yield partial(self._checkpoint, self._begin_checkpoints(logs), watermarks)

    def plan_log_starts(self) -> Work:
        """Write down where logs begin, after records were deleted.

        A log must reach its start on disk before the start is written: otherwise a crash
        leaves a log that ends before it begins, and what followed has no place to go.
        """
        ahead = [log for log in list(self.logs.values()) if log.log_start > log.flushed_end]
        begun = self._begin_checkpoints(ahead)
        return lambda: self._write_starts(begun)

    def _write_starts(self, begun: list[tuple[Log, CheckpointTicket]]) -> None:
        self._carry_out_all(begun)
        self._write([(LOG_STARTS, self._starts)])

    def check_start_written(self, log: Log, start: Offset) -> None:
        """Raise if a crash could let ``log`` begin before ``start`` again."""
        log.check_online()
        if self._written[LOG_STARTS].get(log.name, 0) < start:
            raise StorageError(
                f"{self.path} is full: that {log.name} begins at {start} could not be written down"
            )

    def keep_reserve(self) -> None:
        """Make the reserve if it is not there, or was spent.  Any thread, one at a time."""
        if self.offline is not None:
            return
        try:
            self.reserve.keep()
        except OSError as error:
            self.fail(f"cannot write in {self.path}: {error}")

    def write_marks(self, log: Log) -> None:
        """Write down at once where ``log`` begins, and where recovery begins with it.

        In this order: a recovery point that the log does not reach would mean damage.
        """
        self._write([(LOG_STARTS, self._starts), (RECOVERY_POINTS, self._recovery_points)])
        log.check_online()
        written = self._written[RECOVERY_POINTS].get(log.name), self._starts().get(log.name)
        if written != (log.recovery_point, self._written[LOG_STARTS].get(log.name)):
            raise StorageError(f"{self.path} is full: the end of {log.name} cannot be changed")

    def void_journal(self, log: Log, offset: Offset) -> None:
        """See to it that nothing of ``log`` from ``offset`` on comes back from the journal."""
        if self.journal is None:
            return
        try:
            self.journal.void(log.topic_id, log.name.partition, offset, log.flushed_end)
        except OSError as error:
            if error.errno in NO_SPACE and self.reserve.spend():
                self.void_journal(log, offset)
            else:
                raise log.failed(error, "cut") from error

    def drop_retired(self, log: Log, now: Millis) -> None:
        """Rename the files of retired segments that nothing needs any more.

        The log's start must be written down, and their producers be in a snapshot.
        """
        start = self._written[LOG_STARTS].get(log.name, Offset(0))
        needless = min(start, max(log.snapshots, default=Offset(0)))
        going = [one for one in log.retired if one.next_offset <= needless and one.is_settled]
        log.retired = [one for one in log.retired if one not in going]
        for segment in going:
            self.drop_files(log, segment, now)

    def drop_files(self, log: Log, segment: Segment, now: Millis) -> None:
        """Rename the files of a segment that the log needs no more, and remove them later."""
        due = Millis(now + log.settings.file_delete_delay_ms)
        segment.release()
        for suffix in (names.LOG, *names.INDEXES, names.KEY_INDEX):
            self._drop(log.path / names.file_name(segment.base_offset, suffix), due)

    def _drop(self, path: Path, due: Millis) -> None:
        doomed = path.with_name(path.name + names.DELETED)
        try:
            self.disk.rename(path, doomed)
        except FileNotFoundError:
            return
        except OSError as error:
            self.fail(f"cannot rename {path}: {error}")
            return
        with self._going_lock:
            self._going.append((due, doomed))

    def purge(self, now: Millis) -> None:
        """Remove files whose time has come.  Any thread: large ones take their time."""
        with self._going_lock:
            due = [path for at, path in self._going if at <= now]
            self._going = [(at, path) for at, path in self._going if at > now]
        for path in due:
            self.disk.unlink(path)

    def free_bytes(self) -> int:
        """What may still be written."""
        return self.disk.free_bytes(self.path)

    def total_bytes(self) -> int:
        """The size of the file system."""
        return self.disk.total_bytes(self.path)

    def _worth_it(self) -> list[Log]:
        """The logs that a crash would leave much of to verify, and those left out for long.

        A checkpoint takes five syncs.  With a thousand busy partitions a small tail each is
        verified faster than that.
        """
        dirty = [log for log in list(self.logs.values()) if checkpointing.is_needed(log)]
        least_bytes = self._recovery_bytes_max // max(len(dirty), 1)
        rounds = {log: self._skipped_rounds.get(log.name, 0) for log in dirty}
        due = [
            log
            for log in dirty
            if log.unchecked_bytes >= least_bytes or log.retired or rounds[log] >= _ROUNDS_MAX
        ]
        due.sort(key=lambda log: log.unchecked_bytes, reverse=True)
        chosen = dict.fromkeys(due[:_LOGS_PER_CHECKPOINT])
        self._skipped_rounds = {log.name: rounds[log] + 1 for log in dirty if log not in chosen}
        return list(chosen)

    def _begin_checkpoints(self, logs: list[Log]) -> list[tuple[Log, CheckpointTicket]]:
        if self.offline is not None:
            return []
        begun = [(log, checkpointing.begin(log)) for log in logs if self.holds(log)]
        return [(log, ticket) for log, ticket in begun if ticket is not None]

    def _checkpoint(
        self,
        begun: list[tuple[Log, CheckpointTicket]],
        watermarks: Mapping[TopicPartition, Offset],
    ) -> None:
        self._carry_out_all(begun)
        self._write(
            [
                (RECOVERY_POINTS, self._recovery_points),
                (LOG_STARTS, self._starts),
                (HIGH_WATERMARKS, lambda: watermarks),
            ]
        )

    def _carry_out_all(self, begun: list[tuple[Log, CheckpointTicket]]) -> None:
        for log, ticket in begun:
            self._carry_out(log, ticket)

    def _carry_out(self, log: Log, ticket: CheckpointTicket) -> None:
        if self.offline is not None:
            return
        try:
            checkpointing.carry_out(log, ticket)
        except OSError as error:
            if not self.holds(log):
                return  # Deleted meanwhile, and its directory with it.
            if error.errno in NO_SPACE and self.reserve.spend():
                # A log's start is written down only as far as the log reaches on disk.
                self._carry_out(log, ticket)
            elif error.errno in (*NO_SPACE, *NO_DESCRIPTORS):
                checkpointing.abandon(log, ticket)
                _events.warning("checkpoint.skipped", partition=str(log.name), reason=str(error))
            else:
                self.fail(f"cannot sync {log.path}: {error}")

    def _recovery_points(self) -> dict[TopicPartition, Offset]:
        return {name: log.recovery_point for name, log in list(self.logs.items())}

    def _starts(self) -> dict[TopicPartition, Offset]:
        """Where logs begin, as far as they reach that on disk; never less than is written."""
        written = self._written[LOG_STARTS]
        starts = {}
        for name, log in list(self.logs.items()):
            reached = max(log.flushed_end, log.recovery_point, written.get(name, Offset(0)))
            if log.log_start > 0:
                starts[name] = min(log.log_start, reached)
        return starts

    def write_clean_ends(self) -> None:
        """Write down how far each log was compacted.  Any thread.

        Never written, or lost, it says too little: then more is compacted once more.
        """
        self._write([(CLEAN_ENDS, self._clean_ends)])

    def _clean_ends(self) -> dict[TopicPartition, Offset]:
        return {name: log.clean_end for name, log in list(self.logs.items()) if log.clean_end}

    def _write(
        self, wanted: list[tuple[str, Callable[[], Mapping[TopicPartition, Offset]]]]
    ) -> None:
        """Offsets are looked up here, under the lock: a later write never says less."""
        if self.offline is not None:
            return
        try:
            for file, offsets in wanted:
                with self._writing:
                    self._write_offsets(file, offsets())
        except OSError as error:
            if error.errno in NO_SPACE and self.reserve.spend():
                self._write(wanted)
            elif error.errno in (*NO_SPACE, *NO_DESCRIPTORS):
                _events.warning("checkpoint.not.written", path=str(self.path), reason=str(error))
            else:
                self.fail(f"cannot write checkpoints: {error}")

    def _write_offsets(self, file: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        if self._written.get(file) != offsets:
            write_offsets(self.disk, self.path / file, offsets)
            self._written[file] = offsets

    # --- ending -------------------------------------------------------------------------

    def close(
        self, marks: Mapping[TopicPartition, Offset], life: BrokerEpoch | None = None
    ) -> None:
        """Sync everything, so that the next start scans nothing.

        ``life`` is this process's registration.  One that never had any passes on what it found:
        that a crash before it lost something is still to be told.
        """
        self._writeback.close()
        if self.offline is not None:
            return
        if not self._opened and not self.logs:
            self._leave_as_found()
            return
        logs = list(self.logs.values())
        begun = self._begin_checkpoints(logs)
        if begun:
            with ThreadPoolExecutor(_CLOSING_THREADS, "closing") as pool:
                list(pool.map(lambda one: self._carry_out(*one), begun))
        self._checkpoint([], {name: at for name, at in marks.items() if name in self.logs})
        unsafe = [log for log in logs if checkpointing.is_needed(log)]
        written = self._written[RECOVERY_POINTS] == self._recovery_points()
        if self.offline is None and not unsafe and written:
            self._leave_clean(life if life is not None else self.stopped_life)

    def _leave_as_found(self) -> None:
        """Nothing was opened, so nothing is known that was not known before."""
        if self.stopped_life is not None:
            self._write_clean_marker(self.stopped_life)

    def _leave_clean(self, life: BrokerEpoch | None) -> None:
        """Everything is in the logs and synced: say so, and leave the journal empty."""
        try:
            if any(entry.name == FOLDER for entry in self.disk.entries(self.path)):
                journal_replay.empty(self.disk, self.path / FOLDER)
        except OSError as error:
            _events.warning("directory.not.clean", path=str(self.path), reason=str(error))
            return
        self._write_clean_marker(NO_BROKER_EPOCH if life is None else life)

    def _write_clean_marker(self, life: BrokerEpoch) -> None:
        marker = msgspec.json.encode({"version": 0, "brokerEpoch": life})
        try:
            self.disk.replace(self.path / _CLEAN, marker)
        except OSError as error:
            _events.warning("directory.not.clean", path=str(self.path), reason=str(error))

    def unlock(self) -> None:
        """Let another process have the directory."""
        self._lock.release()

    def _take_clean_marker(self) -> BrokerEpoch | None:
        marker = self.path / _CLEAN
        try:
            text = self.disk.read(marker)
        except FileNotFoundError:
            return None
        self.disk.unlink(marker)
        self.disk.sync_directory(self.path)
        try:
            return BrokerEpoch(msgspec.json.decode(text, type=dict[str, int])["brokerEpoch"])
        except (msgspec.DecodeError, KeyError):
            return NO_BROKER_EPOCH


def _is_half_made(entry: Entry) -> bool:
    """Whether it is the metadata of a directory whose maker died before it had its name."""
    return entry.name == names.PARTITION_METADATA + names.TEMPORARY


def _not_usable(path: Path, error: OSError) -> str:
    return (
        f"cannot use {path}: {error.strerror or error}. Remedy: make it writable for this user, "
        "or give another --data-dir"
    )
