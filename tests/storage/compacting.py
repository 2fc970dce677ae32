"""Compacted logs for tests of storage."""

from collections.abc import Iterable

from tests.storage.building import NAME, NOW, TOPIC_ID, append, checkpoint, flush, open_directory
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.batch import BatchBuilder, records_of
from waystation.records.compression import Codec
from waystation.records.header import batches
from waystation.storage.cleanable import Dirt, dirt_of
from waystation.storage.compaction import Compaction
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import Disk
from waystation.storage.log import Log

COMPACT = TopicSettings(
    cleanup_policy=("compact",),
    segment_bytes=500,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
)
SECRET = bytes(range(16))


def keyed(
    *rows: tuple[bytes | None, bytes | None],
    timestamp: int = NOW,
    producer: int = -1,
    sequence: int = -1,
    codec: Codec = Codec.NONE,
) -> bytearray:
    """One batch of keys and values."""
    epoch = ProducerEpoch(0 if producer >= 0 else -1)
    builder = BatchBuilder(
        codec, producer_id=ProducerId(producer), producer_epoch=epoch, base_sequence=sequence
    )
    for key, value in rows:
        builder.append(key, value, timestamp=timestamp)
    return bytearray(builder.build())


def new_compacted(disk: Disk, settings: TopicSettings = COMPACT) -> tuple[DataDirectory, Log]:
    directory = open_directory(disk)
    return directory, directory.create_log(NAME, TOPIC_ID, settings)


def put(log: Log, rows: Iterable[tuple[bytes, bytes | None]], timestamp: int = NOW) -> None:
    """Each row in a batch of its own."""
    for key, value in rows:
        append(log, keyed((key, value), timestamp=timestamp))


def settled(directory: DataDirectory, log: Log) -> None:
    """Close the active segment, and let everything be safe."""
    log.roll()
    flush(log)
    checkpoint(directory)


def dirt_in(log: Log, now: int = NOW) -> Dirt:
    return dirt_of(log, log.flushed_end, Millis(now))


def pass_over(log: Log, now: int = NOW, map_bytes: int = 1 << 20) -> Compaction:
    """A pass that has not begun."""
    return Compaction(log, dirt_in(log, now), now=Millis(now), map_bytes=map_bytes, secret=SECRET)


def compact(log: Log, now: int = NOW, map_bytes: int = 1 << 20) -> Compaction:
    """One whole pass."""
    compaction = pass_over(log, now, map_bytes)
    for work in compaction.steps():
        work()
    return compaction


def rows_in(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of everything there is, read as a consumer does."""
    offset, rows = log.log_start, []
    while offset < log.log_end:
        found = log.read(offset, 1 << 20, log.log_end)
        assert found.region is not None, f"nothing at {offset}"
        content = found.region.read()
        for at, _ in batches(content):
            rows += [
                (int(one.offset), one.key, one.value)
                for one in records_of(content, at)
                if one.offset >= log.log_start
            ]
        offset = Offset(found.next_offset)
    return rows
