"""What finding batches costs the loop, without moving their bytes.

A consumer at the end of the log, one that reads on through old segments, and one that begins
anywhere.  Run: python -m benchmarks.storage.read
"""

import random
import tempfile
import time
from pathlib import Path
from uuid import UUID

from benchmarks.storage.append import EPOCH, NOW, batch_of

from waystation.model.ids import NodeId, TopicId, TopicPartition
from waystation.model.offsets import Offset
from waystation.model.topics import TopicSettings
from waystation.records.header import peek
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import RealDisk
from waystation.storage.log import Log
from waystation.storage.settings import StorageSettings


def tail(log: Log, batch: bytearray, count: int) -> float:
    """Append one batch and read it, over and over; the append's time is taken off."""
    view, header, spent = memoryview(batch), peek(batch), 0.0
    for _ in range(count):
        offset = log.log_end
        log.append(view, header, EPOCH, NOW)
        started = time.perf_counter()
        log.read(offset, 1 << 20, log.log_end)
        spent += time.perf_counter() - started
    return spent / count


def catch_up(log: Log, max_bytes: int) -> float:
    """Read from the first offset to the last."""
    offset, count, started = log.log_start, 0, time.perf_counter()
    while offset < log.log_end:
        offset = log.read(offset, max_bytes, log.log_end).next_offset
        count += 1
    return (time.perf_counter() - started) / count


def anywhere(log: Log, count: int) -> float:
    """Begin at random offsets."""
    chance = random.Random(1)
    offsets = [Offset(chance.randrange(log.log_start, log.log_end)) for _ in range(count)]
    started = time.perf_counter()
    for offset in offsets:
        log.read(offset, 1 << 20, log.log_end)
    return (time.perf_counter() - started) / count


def measure(folder: Path, records: int) -> None:
    directory = DataDirectory(folder, RealDisk(), StorageSettings(), NodeId(1))
    settings = TopicSettings(segment_bytes=64 << 20)
    log = directory.create_log(TopicPartition("t", 0), TopicId(UUID(int=1)), settings)
    batch = batch_of(1024, records)
    for _ in range((400 << 20) // len(batch)):
        log.append(memoryview(batch), peek(batch), EPOCH, NOW)
    print(
        f"{len(batch):>7} bytes per batch: tail {tail(log, batch, 5_000) * 1e6:5.1f} µs, "
        f"next MB {catch_up(log, 1 << 20) * 1e6:5.1f} µs, "
        f"next 64 KB {catch_up(log, 64 << 10) * 1e6:5.1f} µs, "
        f"anywhere {anywhere(log, 5_000) * 1e6:6.1f} µs"
    )
    directory.delete_log(log)
    directory.unlock()


def main() -> None:
    for records in (1, 16, 256):
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), records)


if __name__ == "__main__":
    main()
