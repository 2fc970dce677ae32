"""One data directory: its lock, its identity, its checkpoints, and the logs in it.

1. One process at a time; another is told who holds it.
2. Checkpoints never say more than is true: a recovery point is written after what it covers was
   synced, a log's start before the files below it go.
3. After a clean close the next start scans nothing; a marker says so, and is gone while open.
4. When the disk fails the directory is offline: everything in it refuses, the rest of the
   node goes on.
"""

import errno
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

from waystation.model.errors import StorageError
from waystation.model.ids import NodeId, TopicId, TopicPartition, uuid_of, uuid_text
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.storage.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_offsets,
    write_offsets,
)
from waystation.storage.disk import Disk, Entry
from waystation.storage.log import Log
from waystation.storage.recovery import PARTITION_METADATA, Marks, new_log, open_log
from waystation.storage.segment import DELETED, OpenFiles
from waystation.storage.settings import StorageSettings
from waystation.telemetry.logs import get_logger

_LOCK = ".lock"
_META = "meta.properties"
_CLEAN = ".kafka_cleanshutdown"
_DOOMED = "-delete"

_events = get_logger("storage")
_NO_OFFSET = Offset(0)


class DataDirectory:
    """Open it with ``open``; every method but ``fail`` belongs to one thread at a time."""

    def __init__(self, path: Path, disk: Disk, settings: StorageSettings, node: NodeId) -> None:
        """Take the directory over, or say why not."""
        self.path = path
        self.disk = disk
        self.files = OpenFiles(settings.open_files_max)
        self.offline: str | None = None
        self.logs: dict[TopicPartition, Log] = {}
        self._settings = settings
        self._going: list[tuple[Millis, Path]] = []
        try:
            disk.make_directory(path)
            self._lock = disk.lock(path / _LOCK)
            self._check_identity(node)
        except OSError as error:
            raise StorageError(_not_usable(path, error)) from error
        self._clean = self._take_clean_marker()
        self._recovery_points = read_offsets(disk, path / RECOVERY_POINTS)
        self._log_starts = read_offsets(disk, path / LOG_STARTS)
        self._written: dict[str, Mapping[TopicPartition, Offset]] = {}

    # --- opening ------------------------------------------------------------------------

    def open_logs(self, settings_of: Callable[[TopicPartition], TopicSettings]) -> list[Log]:
        """Open every log that lies here, several at a time."""
        found = [entry for entry in self.disk.entries(self.path) if self._is_log(entry)]
        threads = self._settings.num_recovery_threads_per_data_dir
        if self._clean or len(found) <= 1:
            opened = [self._open(entry, settings_of) for entry in found]
        else:
            with ThreadPoolExecutor(threads, thread_name_prefix="recovery") as pool:
                opened = list(pool.map(lambda entry: self._open(entry, settings_of), found))
        self.logs = {log.name: log for log in opened if log is not None}
        return list(self.logs.values())

    def _is_log(self, entry: Entry) -> bool:
        if entry.is_directory and entry.name.endswith(_DOOMED):
            self.disk.remove_tree(self.path / entry.name)
            return False
        topic, _, partition = entry.name.rpartition("-")
        return entry.is_directory and bool(topic) and partition.isdecimal()

    def _open(
        self, entry: Entry, settings_of: Callable[[TopicPartition], TopicSettings]
    ) -> Log | None:
        topic, _, partition = entry.name.rpartition("-")
        name = TopicPartition(topic, int(partition))
        path = self.path / entry.name
        try:
            topic_id = _topic_id(self.disk.read(path / PARTITION_METADATA))
            marks = Marks(
                self._recovery_points.get(name, _NO_OFFSET),
                self._log_starts.get(name, _NO_OFFSET),
                self._clean,
            )
            settings = settings_of(name)
            return open_log(self, name, topic_id, path, settings, marks, _jitter(settings))
        except FileNotFoundError:
            # Made, but not finished, when the node crashed: nothing was ever written to it.
            _events.warning("log.unfinished", path=str(path), action="removed")
            self.disk.remove_tree(path)
        except (OSError, ValueError) as error:
            self.fail(f"cannot open {path}: {error}")
        return None

    def create_log(self, name: TopicPartition, topic_id: TopicId, settings: TopicSettings) -> Log:
        """Make an empty log; it survives a crash when this returns."""
        path = self.path / str(name)
        try:
            self.disk.make_directory(path)
            self.disk.replace(path / PARTITION_METADATA, _metadata(topic_id))
            log = new_log(self, name, topic_id, path, settings, _jitter(settings))
            self.disk.sync_directory(self.path)
        except OSError as error:
            raise StorageError(_not_usable(path, error)) from error
        self.logs[name] = log
        return log

    def delete_log(self, log: Log) -> None:
        """Remove a log with all its records; gone for the next start at once."""
        self.logs.pop(log.name, None)
        doomed = self.path / f"{log.name}.{uuid4().hex}{_DOOMED}"
        try:
            self.disk.rename(log.path, doomed)
            self.disk.sync_directory(self.path)
            self.disk.remove_tree(doomed)
        except OSError as error:
            self.fail(f"cannot delete {log.path}: {error}")

    # --- upkeep -------------------------------------------------------------------------

    def fail(self, reason: str) -> None:
        """Go offline; only a restart brings the directory back."""
        if self.offline is None:
            self.offline = reason
            _events.error("directory.offline", path=str(self.path), reason=reason)

    def plan_checkpoint(self, marks: Mapping[TopicPartition, Offset]) -> Callable[[], None]:
        """Write what belongs to the loop's thread; what is returned may run in another."""
        try:
            for log in self.logs.values():
                log.save_progress()
        except OSError as error:
            self.fail(f"cannot write indexes: {error}")
        wanted = {
            RECOVERY_POINTS: {name: log.flushed_end for name, log in self.logs.items()},
            LOG_STARTS: self._starts(),
            HIGH_WATERMARKS: {name: at for name, at in marks.items() if name in self.logs},
        }
        return lambda: self._write(wanted)

    def plan_log_starts(self) -> Callable[[], None]:
        """The same for the starts of logs alone, after records were deleted."""
        wanted = {LOG_STARTS: self._starts()}
        return lambda: self._write(wanted)

    def _starts(self) -> dict[TopicPartition, Offset]:
        return {name: log.log_start for name, log in self.logs.items() if log.log_start > 0}

    def _write(self, wanted: Mapping[str, Mapping[TopicPartition, Offset]]) -> None:
        if self.offline is not None:
            return
        try:
            for file, offsets in wanted.items():
                if self._written.get(file) != offsets:
                    write_offsets(self.disk, self.path / file, offsets)
                    self._written[file] = offsets
        except OSError as error:
            if error.errno == errno.ENOSPC:
                _events.warning("checkpoint.not.written", path=str(self.path), reason="disk full")
            else:
                self.fail(f"cannot write checkpoints: {error}")

    def drop_retired(self, log: Log, now: Millis) -> None:
        """Rename the files of retired segments; call once the log's start is written down."""
        for segment in log.retired:
            for path in segment.paths():
                doomed = path.with_name(path.name + DELETED)
                try:
                    self.disk.rename(path, doomed)
                except FileNotFoundError:
                    continue
                self._going.append((Millis(now + log.settings.file_delete_delay_ms), doomed))
            self.disk.unlink(log.snapshot_path(segment.base_offset))
        log.retired.clear()

    def purge(self, now: Millis) -> None:
        """Remove files whose time has come."""
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

    # --- ending -------------------------------------------------------------------------

    def close(self, marks: Mapping[TopicPartition, Offset]) -> None:
        """Sync everything, so that the next start scans nothing."""
        if self.offline is not None:
            return
        try:
            for log in self.logs.values():
                log.close()
            self.plan_checkpoint(marks)()
            if self.offline is None:
                self.disk.replace(self.path / _CLEAN, b'{"version":0,"brokerEpoch":-1}')
        except OSError as error:
            self.fail(f"cannot close cleanly: {error}")

    def unlock(self) -> None:
        """Let another process have the directory."""
        self._lock.release()

    def _take_clean_marker(self) -> bool:
        marker = self.path / _CLEAN
        try:
            self.disk.read(marker)
        except FileNotFoundError:
            return False
        self.disk.unlink(marker)
        self.disk.sync_directory(self.path)
        return True

    def _check_identity(self, node: NodeId) -> None:
        path = self.path / _META
        try:
            text = self.disk.read(path).decode()
        except FileNotFoundError:
            identity = f"version=1\nnode.id={node}\ndirectory.id={uuid_text(uuid4())}\n"
            self.disk.replace(path, identity.encode())
            return
        facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        if facts.get("node.id") != str(node):
            self._lock.release()
            raise StorageError(
                f"{self.path} belongs to node {facts.get('node.id')}, this is node {node}: use "
                "--node-id, or another --data-dir"
            )


def _not_usable(path: Path, error: OSError) -> str:
    return (
        f"cannot use {path}: {error.strerror or error}. Remedy: make it writable for this user, "
        "or give another --data-dir"
    )


def _metadata(topic_id: TopicId) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}\n".encode()


def _topic_id(text: bytes) -> TopicId:
    facts = dict(line.split(": ", 1) for line in text.decode().splitlines())
    if "topic_id" not in facts:
        raise ValueError(f"{PARTITION_METADATA} names no topic id")
    return TopicId(uuid_of(facts["topic_id"]))


def _jitter(settings: TopicSettings) -> int:
    """A share of ``segment.jitter.ms`` by chance, drawn once per log and life."""
    return uuid4().int % (settings.segment_jitter_ms + 1)
