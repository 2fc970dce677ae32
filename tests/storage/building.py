"""Logs and batches for tests of storage."""

from pathlib import Path
from uuid import UUID

from waystation.model.ids import (
    LeaderEpoch,
    NodeId,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.batch import BatchBuilder, records_of
from waystation.records.control import Marker, marker_batch
from waystation.records.header import batches, peek
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import Disk
from waystation.storage.log import Log
from waystation.storage.settings import StorageSettings
from waystation.storage.surroundings import Appended
from waystation.testing.disk import SimulatedDisk

NAME = TopicPartition("orders", 0)
TOPIC_ID = TopicId(UUID(int=7))
ROOT = Path("/data")
FOLDER = ROOT / str(NAME)
NOW = Millis(1_700_000_000_000)
SMALL = TopicSettings(segment_bytes=500, index_interval_bytes=100, file_delete_delay_ms=0)
# Every checkpoint covers every log.
STORAGE = StorageSettings(recovery_bytes_max=0)


def batch_of(
    *values: bytes,
    timestamp: int = NOW,
    producer: int = -1,
    sequence: int = -1,
    producer_epoch: int | None = None,
    transactional: bool = False,
) -> bytearray:
    """One batch; an idempotent one if it names a producer."""
    epoch = producer_epoch if producer_epoch is not None else (0 if producer >= 0 else -1)
    builder = BatchBuilder(
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=sequence,
        is_transactional=transactional,
    )
    for number, value in enumerate(values):
        builder.append(None, value, timestamp=timestamp + number)
    return bytearray(builder.build())


def append(log: Log, batch: bytearray, *, epoch: int = 0, now: Millis = NOW) -> Appended:
    return log.append(memoryview(batch), peek(batch), LeaderEpoch(epoch), now)


def end(
    log: Log,
    producer: int,
    *,
    commit: bool,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    now: Millis = NOW,
) -> Appended:
    """Write the marker that ends a producer's transaction."""
    marker = Marker(ProducerId(producer), ProducerEpoch(producer_epoch), coordinator_epoch, commit)
    return log.append_marker(memoryview(marker_batch(marker, now)), marker, LeaderEpoch(0), now)


def append_values(log: Log, *values: bytes) -> None:
    """Each value in a batch of its own."""
    for value in values:
        append(log, batch_of(value))


def flush(log: Log) -> None:
    ticket = log.begin_flush()
    if ticket is not None:
        ticket.sync()
        log.finish_flush(ticket)


def checkpoint(directory: DataDirectory) -> None:
    for step in directory.checkpoint_steps({}):
        step()


def open_directory(
    disk: Disk, path: Path = ROOT, storage: StorageSettings = STORAGE
) -> DataDirectory:
    return DataDirectory(path, disk, storage, NodeId(1))


def new_log(
    disk: Disk, settings: TopicSettings = SMALL, path: Path = ROOT
) -> tuple[DataDirectory, Log]:
    directory = open_directory(disk, path)
    return directory, directory.create_log(NAME, TOPIC_ID, settings)


def open_log(
    disk: Disk, settings: TopicSettings = SMALL, path: Path = ROOT
) -> tuple[DataDirectory, Log]:
    """The log after a restart of the process."""
    directory = open_directory(disk, path)
    (log,) = directory.open_logs(lambda _: settings)
    return directory, log


def restart(directory: DataDirectory, disk: Disk) -> tuple[DataDirectory, Log]:
    """Kill the process, which leaves everything it wrote, and start it again."""
    directory.unlock()
    return open_log(disk, path=directory.path)


def read_all(log: Log, max_bytes: int = 1 << 20) -> bytes:
    """Everything in the log, read as a consumer does."""
    offset, content = log.log_start, b""
    while offset < log.log_end:
        found = log.read(offset, max_bytes, log.log_end)
        assert found.region is not None, f"nothing at {offset}"
        content += found.region.read()
        offset = found.next_offset
    return content


def values_of(log: Log) -> list[bytes | None]:
    """The values of all records from the log's start on."""
    content = read_all(log)
    return [
        record.value
        for at, _ in batches(content)
        for record in records_of(content, at)
        if record.offset >= log.log_start
    ]


def file_of(disk: SimulatedDisk, name: str) -> bytes:
    return disk.read(FOLDER / name)


def overwrite(disk: Disk, path: Path, data: bytes, position: int) -> None:
    """Damage a file, durably."""
    file = disk.open(path)
    file.pwrite(data, position)
    file.datasync()


def names_in(disk: Disk, path: Path = FOLDER) -> list[str]:
    return [entry.name for entry in disk.entries(path)]


def segment_name(offset: int, suffix: str = ".log") -> str:
    return f"{offset:020d}{suffix}"


def offsets(log: Log) -> list[Offset]:
    """Where the log's segments begin."""
    return [segment.base_offset for segment in log.segments]
