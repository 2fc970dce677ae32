"""Looks at the data directories of a stopped broker: what is in them, and how far it goes.

The directories are opened as the broker would open them, so that a tail which a crash has torn
is cut, and what only the journal holds is in the logs: what is told is what the broker will have.
They are closed as they were found, but for that.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from waystation.cluster.keepsakes import FILE_NAME, Keepsake, newest, read_keepsake
from waystation.cluster.rebuilding import FoundReplica, Survey
from waystation.model.errors import StorageError
from waystation.model.ids import NO_LEADER_EPOCH, NO_PRODUCER, NodeId
from waystation.model.topics import TopicSettings
from waystation.runtime.clock import Clock
from waystation.storage.checkpoints import HIGH_WATERMARKS, read_offsets
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import Disk
from waystation.storage.identity import META_PROPERTIES
from waystation.storage.journal import FOLDER
from waystation.storage.journal_replay import replay
from waystation.storage.log import Log
from waystation.storage.settings import StorageSettings


def survey(paths: Sequence[Path], disk: Disk, clock: Clock) -> list[Survey]:
    """What each node's directories hold, in the order of the nodes."""
    by_node: dict[NodeId, list[Path]] = {}
    for path in paths:
        by_node.setdefault(_node_of(path, disk), []).append(path)
    return [_survey(node, some, disk, clock) for node, some in sorted(by_node.items())]


def _node_of(path: Path, disk: Disk) -> NodeId:
    """Whose directory it is; asked before it is opened, which would claim it."""
    try:
        text = disk.read(path / META_PROPERTIES).decode(errors="replace")
    except OSError as error:
        raise StorageError(
            f"{path} is no data directory of a broker: {META_PROPERTIES}: {error.strerror}"
        ) from error
    facts = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if not facts.get("node.id", "").isdecimal():
        raise StorageError(f"{path / META_PROPERTIES} is damaged: it names no node.id")
    return NodeId(int(facts["node.id"]))


def _survey(node: NodeId, paths: Iterable[Path], disk: Disk, clock: Clock) -> Survey:
    found: dict[object, FoundReplica] = {}
    clusters, lives, keepsakes = [], [], []
    for path in paths:
        directory = DataDirectory(path, disk, StorageSettings(), node)
        try:
            logs = directory.open_logs(lambda _: TopicSettings())
            replay(disk, path / FOLDER, logs, clock.now())
            if directory.offline is not None:
                raise StorageError(f"{path} cannot be read: {directory.offline}")
            for one in map(_replica, logs):
                other = found.get(one.partition)
                if other is None or other.reach < one.reach:
                    found[one.partition] = one
            clusters.append(directory.cluster_id)
            lives.append(directory.last_life)
            keepsakes.append(_keepsake(path, disk))
            directory.close(read_offsets(disk, path / HIGH_WATERMARKS))
        finally:
            directory.unlock()
    known = next((one for one in clusters if one is not None), None)
    kept = newest(keepsakes, known)
    return Survey(node, known, max(lives), tuple(found.values()), kept)


def _keepsake(path: Path, disk: Disk) -> Keepsake | None:
    try:
        data = disk.read(path / FILE_NAME)
    except FileNotFoundError:
        return None
    return read_keepsake(data, str(path / FILE_NAME))


def _replica(log: Log) -> FoundReplica:
    epochs = log.epochs.entries
    return FoundReplica(
        log.name,
        log.topic_id,
        epochs[-1].epoch if epochs else NO_LEADER_EPOCH,
        log.log_start,
        log.log_end,
        log.clean_end > 0,
        max((one.producer_id for one in log.producers.active()), default=NO_PRODUCER),
    )
