"""A partition over a real log, whose syncs happen when the test says so."""

from collections.abc import Callable
from pathlib import Path
from typing import cast
from uuid import UUID

from waystation.model.errors import StorageError
from waystation.model.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.partition.leadership import Leadership
from waystation.partition.meters import TopicMeter
from waystation.partition.partition import Partition
from waystation.records.batch import BatchBuilder
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import RealDisk
from waystation.storage.flusher import Done, Flusher
from waystation.storage.log import Log
from waystation.storage.settings import StorageSettings
from waystation.telemetry.metrics import Registry

HERE, ELSEWHERE = NodeId(1), NodeId(2)
NOW = Millis(1_700_000_000_000)
DISK = TopicSettings()
MEMORY = TopicSettings(durability="memory")


class PatientFlusher:
    """Syncs when it is told to, with the log's own tickets."""

    def __init__(self) -> None:
        self.wanted: dict[Log, Done] = {}

    def request(self, log: Log, done: Done, linger_s: float = 0.0) -> None:
        self.wanted[log] = done

    def sync(self) -> None:
        """Carry out what was requested."""
        wanted, self.wanted = self.wanted, {}
        for log, done in wanted.items():
            ticket = log.begin_flush()
            if ticket is not None:
                ticket.sync()
                log.finish_flush(ticket)
            done(log, log.flushed_end)

    def fail(self) -> None:
        """Tell everyone that the disk is gone."""
        wanted, self.wanted = self.wanted, {}
        for log, done in wanted.items():
            error = StorageError("the disk is gone")
            log.fail(error)
            done(log, error)


class World:
    """Partitions of topic ``t``, their directory, and what was deferred."""

    def __init__(self, path: Path) -> None:
        self.directory = DataDirectory(path, RealDisk(), StorageSettings(), HERE)
        self.flusher = PatientFlusher()
        self.deferred: list[Callable[[], None]] = []
        self.registry = Registry()

    def partition(self, settings: TopicSettings = DISK, number: int = 0) -> Partition:
        name, topic_id = TopicPartition("t", number), TopicId(UUID(int=7))
        return Partition(
            name,
            topic_id,
            self.directory.create_log(name, topic_id, settings),
            settings,
            node=HERE,
            flusher=cast(Flusher, self.flusher),
            meter=TopicMeter(self.registry, "t"),
            defer=lambda run: self.deferred.append(run),
        )

    def turn(self) -> None:
        """The loop's next turn."""
        deferred, self.deferred = self.deferred, []
        for run in deferred:
            run()


def led(leader: NodeId = HERE, epoch: int = 0) -> Leadership:
    """The store's words: ``leader`` leads, alone in sync."""
    return Leadership(leader, LeaderEpoch(epoch), (leader,))


def batch_of(*values: bytes, timestamp: int = NOW) -> memoryview:
    builder = BatchBuilder()
    for value in values:
        builder.append(None, value, (), timestamp=timestamp)
    return memoryview(bytearray(builder.build()))


def offset(number: int) -> Offset:
    return Offset(number)
