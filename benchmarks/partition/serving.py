"""What one append, one copied batch and one read of a partition cost the loop.

Syncs are never begun, so that only the loop's own work counts; of the log's part alone see
benchmarks/storage/append.py and read.py.  Run: python -m benchmarks.partition.serving
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast
from uuid import UUID

from benchmarks.storage.append import NOW, batch_of

from waystation.model.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from waystation.model.offsets import Offset
from waystation.model.topics import TopicSettings
from waystation.partition.leadership import Leadership
from waystation.partition.meters import TopicMeter
from waystation.partition.partition import ACKS_ALL, Partition
from waystation.records.header import stamp
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import RealDisk
from waystation.storage.flusher import Flusher
from waystation.storage.settings import StorageSettings
from waystation.telemetry.metrics import Registry

HERE: Final = NodeId(1)
EPOCH: Final = LeaderEpoch(0)
COUNT: Final = 20_000
ROUNDS: Final = 5


class NeverSyncs:
    """A flusher that takes note of nothing."""

    def request(self, *_: object) -> None:
        """Leave the log as it is."""


def partition_in(directory: DataDirectory, durability: str, number: int) -> Partition:
    name, topic_id = TopicPartition("t", number), TopicId(UUID(int=1))
    settings = TopicSettings(durability=durability, segment_bytes=64 << 20)
    return Partition(
        name,
        topic_id,
        directory.create_log(name, topic_id, settings),
        settings,
        node=HERE,
        flusher=cast(Flusher, NeverSyncs()),
        meter=TopicMeter(Registry(), "t"),
        defer=lambda _: None,
    )


def best_us(run: Callable[[], None]) -> float:
    """Microseconds per turn of the quickest of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - started)
    return best / COUNT * 1e6


def appending(partition: Partition, batch: memoryview) -> None:
    for _ in range(COUNT):
        stamp(batch, 0, Offset(0), EPOCH)
        partition.append(batch, ACKS_ALL, NOW)


def copying(partition: Partition, batch: memoryview, records_count: int) -> None:
    end = partition.log_end
    for number in range(COUNT):
        stamp(batch, 0, Offset(end + number * records_count), EPOCH)
        partition.append_replicated(batch, NOW)


def reading(partition: Partition) -> None:
    offset = partition.log_start
    for _ in range(COUNT):
        offset = partition.read(offset, 4_096, at_least_one=True).next_offset


def measure(folder: Path, durability: str) -> None:
    directory = DataDirectory(folder, RealDisk(), StorageSettings(), HERE)
    led = partition_in(directory, durability, 0)
    copy = partition_in(directory, durability, 1)
    led.follow_store(Leadership(HERE, EPOCH, (HERE,)))
    copy.follow_store(Leadership(NodeId(2), EPOCH, (NodeId(2), HERE)))
    batch = memoryview(batch_of(100, 1))
    costs = [best_us(lambda: appending(led, batch)), best_us(lambda: copying(copy, batch, 1))]
    if durability == "memory":
        costs.append(best_us(lambda: reading(led)))
    print(f"{durability:>8}" + "".join(f"{cost:>10.2f}" for cost in costs))
    directory.unlock()


def main() -> None:
    print(f"{'':>8}{'append':>10}{'copy':>10}{'read':>10}  us per call")
    for durability in ("memory", "disk"):
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), durability)


if __name__ == "__main__":
    main()
