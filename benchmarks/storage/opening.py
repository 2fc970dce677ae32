"""How long a data directory takes to open: many logs, and one long one.

Clean: after a clean close.  Killed: after a kill -9 right after a checkpoint and some more
appends.  Run: python -m benchmarks.storage.opening [--logs 1000] [--gigabytes 1]
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path
from uuid import UUID

from benchmarks.storage.append import EPOCH, NOW, batch_of

from waystation.model.ids import NodeId, TopicId, TopicPartition
from waystation.model.topics import TopicSettings
from waystation.records.header import peek
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import RealDisk
from waystation.storage.log import Log
from waystation.storage.settings import StorageSettings

TOPIC_ID = TopicId(UUID(int=1))
SETTINGS = TopicSettings()


def opened(path: Path) -> tuple[DataDirectory, list[Log], float]:
    started = time.perf_counter()
    directory = DataDirectory(path, RealDisk(), StorageSettings(), NodeId(1))
    logs = directory.open_logs(lambda _: SETTINGS)
    assert directory.offline is None, directory.offline
    return directory, logs, time.perf_counter() - started


def grow(log: Log, batch: bytearray, nbytes: int) -> None:
    header = peek(batch)
    for _ in range(nbytes // len(batch)):
        log.append(memoryview(batch), header, EPOCH, NOW)


def many_logs(path: Path, count: int) -> None:
    directory = DataDirectory(path, RealDisk(), StorageSettings(), NodeId(1))
    started = time.perf_counter()
    logs = [
        directory.create_log(TopicPartition("t", number), TOPIC_ID, SETTINGS)
        for number in range(count)
    ]
    made_s = time.perf_counter() - started
    for log in logs:
        grow(log, batch_of(1024, 1), 50 << 10)
    started = time.perf_counter()
    directory.close({})
    closed_s = time.perf_counter() - started
    directory.unlock()
    directory, logs, clean_s = opened(path)
    for log in logs:
        grow(log, batch_of(1024, 1), 10 << 10)
    directory.unlock()
    directory, logs, killed_s = opened(path)
    assert len(logs) == count
    directory.unlock()
    print(
        f"{count} logs: made in {made_s:.2f} s, closed in {closed_s:.2f} s, opened clean in "
        f"{clean_s:.2f} s, killed in {killed_s:.2f} s; {_rss_mb()} MB resident"
    )


def one_long_log(path: Path, gigabytes: float, records: int) -> None:
    directory = DataDirectory(path, RealDisk(), StorageSettings(), NodeId(1))
    log = directory.create_log(TopicPartition("t", 0), TOPIC_ID, SETTINGS)
    batch = batch_of(1024, records)
    grow(log, batch, int(gigabytes * (1 << 30)))
    for step in directory.checkpoint_steps({}):
        step()
    grow(log, batch, 60 << 20)
    end = log.log_end
    directory.unlock()
    directory, logs, killed_s = opened(path)
    assert logs[0].log_end == end
    directory.close({})
    directory.unlock()
    directory, logs, clean_s = opened(path)
    directory.unlock()
    print(
        f"{gigabytes:g} GB in batches of {len(batch)} bytes: opened killed, 60 MB behind the "
        f"checkpoint, in {killed_s:.2f} s, clean in {clean_s:.3f} s"
    )


def _rss_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--logs", type=int, default=1_000)
    arguments.add_argument("--gigabytes", type=float, default=1.0)
    arguments.add_argument("--folder", default=None, help="on the disk to be measured")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        many_logs(Path(folder) / "many", given.logs)
        for records in (1, 64):
            one_long_log(Path(folder) / f"long-{records}", given.gigabytes, records)


if __name__ == "__main__":
    main()
