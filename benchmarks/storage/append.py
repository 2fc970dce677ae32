"""What one append costs the loop: the log's own work, and the kernel's write within it.

Run: python -m benchmarks.storage.append
"""

import os
import tempfile
import time
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
from waystation.model.offsets import Millis
from waystation.model.topics import TopicSettings
from waystation.records.batch import BatchBuilder
from waystation.records.header import peek
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import RealDisk
from waystation.storage.settings import StorageSettings

NOW = Millis(1_700_000_000_000)
EPOCH = LeaderEpoch(0)


def batch_of(value_bytes: int, records: int) -> bytearray:
    builder = BatchBuilder()
    for _ in range(records):
        builder.append(None, os.urandom(value_bytes), timestamp=NOW)
    return bytearray(builder.build())


def measure(folder: Path, value_bytes: int, records: int, idempotent: bool) -> None:
    directory = DataDirectory(folder / "data", RealDisk(), StorageSettings(), NodeId(1))
    log = directory.create_log(TopicPartition("t", 0), TopicId(UUID(int=1)), TopicSettings())
    batch = batch_of(value_bytes, records)
    view, header = memoryview(batch), peek(batch)
    count = min(30_000, (400 << 20) // len(batch))
    sequence, best, best_write = 0, 1e9, 1e9
    with tempfile.TemporaryFile(dir=folder) as plain:
        for _ in range(3):
            started = time.perf_counter()
            for _ in range(count):
                if idempotent:
                    header = header._replace(
                        producer_id=ProducerId(7),
                        producer_epoch=ProducerEpoch(0),
                        base_sequence=sequence,
                    )
                    sequence += records
                log.append(view, header, EPOCH, NOW)
            best = min(best, (time.perf_counter() - started) / count)
            os.ftruncate(plain.fileno(), 0)
            started = time.perf_counter()
            for number in range(count):
                os.pwrite(plain.fileno(), view, number * len(batch))
            best_write = min(best_write, (time.perf_counter() - started) / count)
    what = "idempotent" if idempotent else "plain"
    print(
        f"{len(batch):>7} bytes {what:<10} {best * 1e6:6.1f} µs per append, "
        f"of which pwrite {best_write * 1e6:5.1f} µs"
    )
    directory.delete_log(log)
    directory.unlock()


def main() -> None:
    for value_bytes, records in ((100, 1), (1024, 1), (1024, 16), (1024, 64), (1024, 900)):
        for idempotent in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                measure(Path(folder), value_bytes, records, idempotent)


if __name__ == "__main__":
    main()
