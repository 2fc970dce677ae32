"""How fast a log is compacted, and what that costs a producer at full speed beside it.

Run: python -m benchmarks.storage.compaction [alone|beside]

Alone: one log, without a limit, by size of records and batches and by how much of it stays.
Beside: a real broker; librdkafka produces 1 KB messages as fast as it can, in turns with and
without a pass over another topic, held to a pace that compacts 30 MB a second.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from uuid import UUID

from benchmarks.loads import librdkafka
from benchmarks.loads.catalog import Kind, Load
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from waystation.model.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from waystation.model.offsets import Millis
from waystation.model.topics import TopicSettings
from waystation.records.batch import BatchBuilder
from waystation.records.compression import Codec
from waystation.records.header import peek
from waystation.storage.cleanable import dirt_of
from waystation.storage.compaction import Compaction
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import RealDisk
from waystation.storage.log import Log
from waystation.storage.settings import StorageSettings
from waystation.testing.process import BrokerProcess

NOW = Millis(1_700_000_000_000)
MB = 1 << 20
PACE_MB = 75  # read twice and written half: 30 MB/s of log
PAIRS = 4
OLD_MB = 700
LOAD = Load("produce", Kind.PRODUCE, 1024, 6, "all", 5_000_000)


# --- alone ----------------------------------------------------------------------------------


def fill(log: Log, total_mb: int, value_bytes: int, records: int, keys: int, codec: Codec) -> None:
    chance = random.Random(1)
    values = [chance.randbytes(value_bytes // 2) * 2 for _ in range(64)]
    while log.size_bytes < total_mb * MB:
        builder = BatchBuilder(codec, limit_bytes=8 * MB)
        for _ in range(records):
            key = b"key-%08d" % chance.randrange(keys)
            builder.append(key, chance.choice(values), timestamp=NOW)
        batch = bytearray(builder.build())
        log.append(memoryview(batch), peek(batch), LeaderEpoch(0), NOW)
    log.roll()


def alone(
    title: str, value_bytes: int, records: int, keys: int, *, codec: Codec = Codec.NONE
) -> None:
    settings = TopicSettings(
        cleanup_policy=("compact",), segment_bytes=64 * MB, file_delete_delay_ms=0
    )
    with tempfile.TemporaryDirectory() as folder:
        directory = DataDirectory(Path(folder), RealDisk(), StorageSettings(), NodeId(1))
        log = directory.create_log(TopicPartition("t", 0), TopicId(UUID(int=1)), settings)
        fill(log, 256, value_bytes, records, keys, codec)
        for step in directory.checkpoint_steps({}):
            step()
        before_mb = log.size_bytes / MB
        dirt = dirt_of(log, log.log_end, NOW)
        started, cpu = time.perf_counter(), time.process_time()
        compaction = Compaction(log, dirt, now=NOW, map_bytes=256 * MB, secret=os.urandom(16))
        for work in compaction.steps():
            work()
        took_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
        print(
            f"{title:<44} {before_mb / took_s:7.0f} MB/s, {before_mb / cpu_s:7.0f} MB per CPU "
            f"second, {log.size_bytes / MB / before_mb:5.0%} stays"
        )
        directory.close({})
        directory.unlock()


def measure_alone() -> None:
    alone("1 KB records, batches of 64 KB, 1k keys", 1_000, 64, 1_000)
    alone("1 KB records, batches of 64 KB, 500k keys", 1_000, 64, 500_000)
    alone("100 B records, batches of 64 KB, 1M keys", 100, 500, 1_000_000)
    alone("100 B records, batches of 64 KB, lz4, 1M keys", 100, 500, 1_000_000, codec=Codec.LZ4)
    alone("1 KB records, one to a batch, 1k keys", 1_000, 1, 1_000)
    alone("100 B records, one to a batch, 1k keys", 100, 1, 1_000)


# --- beside a producer ----------------------------------------------------------------------


def prepare(broker: BrokerProcess, topic: str, megabytes: int) -> None:
    """A topic of which half stays, left alone until it is told."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(16 * MB),
        "min.cleanable.dirty.ratio": "1",
        "durability": "memory",
    }
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result(10)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "batch.size": 64_000, "acks": 1}
    )
    count, value = megabytes * 1_000, os.urandom(1_000)
    for number in range(count):
        # Each key twice, half the log apart.
        producer.produce(topic, key=b"%d" % (number % (count // 2)), value=value)
        if number % 1_000 == 0:
            producer.poll(0)
            while len(producer) > 50_000:
                producer.poll(0.05)
    assert producer.flush(60) == 0


def set_ratio(broker: BrokerProcess, topic: str, ratio: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    change = ConfigEntry(
        "min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(10)


def cleaned_mb(broker: BrokerProcess) -> float:
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    name = "waystation_compaction_cleaned_bytes_total"
    (value,) = [line.split()[1] for line in lines if line.startswith(name + " ")]
    return float(value) / MB


class Watch:
    """Notes how fast a pass goes while something else is measured."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._done = threading.Event()
        self.samples: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._done.wait(0.25):
            self.samples.append((time.monotonic(), cleaned_mb(self._broker)))

    def stop(self) -> float:
        """MB of log per second, between the first and the last segment that was finished."""
        self._done.set()
        self._thread.join()
        moved = [one for n, one in enumerate(self.samples) if n and one[1] > self.samples[n - 1][1]]
        if len(moved) < 2:
            return 0.0
        (first_s, first_mb), (last_s, last_mb) = moved[0], moved[-1]
        return (last_mb - first_mb) / (last_s - first_s)


def measure_beside(durability: str) -> None:
    librdkafka.build()
    options = {
        "log.cleaner.backoff.ms": "200",
        "log.cleaner.io.max.bytes.per.second": str(PACE_MB * MB),
        "log.flush.offset.checkpoint.interval.ms": "1000",
        "recovery.bytes.max": "0",
        "durability": durability,
        "retention.bytes": str(64 * MB),
        "segment.bytes": str(64 * MB),
        "log.retention.check.interval.ms": "1000",
        "file.delete.delay.ms": "0",
    }
    without, beside, paces = [], [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerProcess(Path(folder) / "data", options=options, http="127.0.0.1:0") as broker,
    ):
        librdkafka.create_topic(broker.bootstrap, "load", LOAD.partitions)
        librdkafka.run(LOAD, broker.bootstrap, "load")
        for number in range(PAIRS):
            prepare(broker, f"old-{number}", OLD_MB)
            time.sleep(3)
            for cleaning in (number % 2 == 0, number % 2 == 1):
                rate, pace = produce(broker, f"old-{number}" if cleaning else None)
                (beside if cleaning else without).append(rate)
                paces += [pace] if cleaning else []
    ratios = [one / other for one, other in zip(beside, without, strict=True)]
    print(
        f"produce 1 KB, 6 partitions, acks=all, durability={durability}: alone "
        f"{statistics.median(without):,.0f}/s, beside compaction at "
        f"{statistics.median(paces):.0f} MB/s {statistics.median(beside):,.0f}/s; ratios "
        + ", ".join(f"{one:.2f}" for one in ratios)
        + f", median {statistics.median(ratios):.2f}"
    )


def produce(broker: BrokerProcess, compacted: str | None) -> tuple[float, float]:
    """Messages per second, and MB of log compacted per second meanwhile."""
    os.sync()
    if compacted is None:
        return float(librdkafka.run(LOAD, broker.bootstrap, "load")["messages_per_s"]), 0.0  # type: ignore[arg-type]
    set_ratio(broker, compacted, "0.01")
    before = cleaned_mb(broker)
    while cleaned_mb(broker) == before:
        time.sleep(0.1)
    watch = Watch(broker)
    rate = float(librdkafka.run(LOAD, broker.bootstrap, "load")["messages_per_s"])  # type: ignore[arg-type]
    pace = watch.stop()
    while cleaned_mb(broker) < before + OLD_MB * 0.9:
        time.sleep(0.5)
    return rate, pace


def main() -> None:
    wanted = sys.argv[1:] or ["alone", "beside"]
    if "alone" in wanted:
        measure_alone()
    if "beside" in wanted:
        for durability in ("memory", "disk"):
            measure_beside(durability)


if __name__ == "__main__":
    main()
