"""What an index of keys costs, and how fast it finds a key's messages.

Run: python -m benchmarks.storage.key_index [messages] [keys]     (20,000,000 and 10,000,000)

One log in a file system, in batches of 100 messages of 100 bytes with keys of 12.  Times are those
of the processor, for the machine may be busy: what the intake's checks and the append cost, what
the index costs beside them, and what a look-up takes from the beginning of the log, by a cached
index; the messages themselves are read, and their keys compared.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from uuid import UUID

from waystation.model.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.partition.intake import Intake
from waystation.records.batch import BatchBuilder
from waystation.records.endings import Aborted
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import RealDisk
from waystation.storage.key_index import KeyIndex, Tools, Wanted, view_of
from waystation.storage.log import Log
from waystation.storage.open_files import OpenFiles
from waystation.storage.settings import StorageSettings

NOW = Millis(1_700_000_000_000)
MB = 1 << 20
PER_BATCH = 100
PADDING = b"x" * 100
STEP_BYTES = 64 * MB
LOOK_UPS = 300


def key_of(number: int) -> bytes:
    return b"user%08d" % number


def batch(chance: random.Random, keys: int) -> bytearray:
    builder = BatchBuilder()
    for _ in range(PER_BATCH):
        builder.append(key_of(chance.randrange(keys)), PADDING, timestamp=NOW)
    return bytearray(builder.build())


def catch_up(index: KeyIndex, log: Log) -> float:
    began = time.process_time()
    while behind := index.behind(log):
        index.catch_up(view_of(log, behind, Offset(0)), STEP_BYTES)
    return time.process_time() - began


def look_up(index: KeyIndex, log: Log, key: bytes) -> tuple[float, int]:
    began, at, found = time.process_time(), log.log_start, 0
    while at < log.log_end:
        wanted = Wanted(key, at, log.log_end, 100, 1 << 20, Aborted())
        page = index.find(view_of(log, log.segments, at), wanted, STEP_BYTES)
        found += len(page.rows)
        at = page.next_offset
    return time.process_time() - began, found


def run(folder: Path, messages: int, keys: int) -> None:
    directory = DataDirectory(folder, RealDisk(), StorageSettings(), NodeId(1))
    name, topic_id = TopicPartition("inbox", 0), TopicId(UUID(int=7))
    log = directory.create_log(name, topic_id, TopicSettings(index_keys=True))
    index = KeyIndex(Tools(bytes(range(16)), OpenFiles(directory.disk, 256)))
    intake, chance = Intake(log.settings), random.Random(7)
    appending_s = indexing_s = 0.0
    for number in range(messages // PER_BATCH):
        made = memoryview(batch(chance, keys))
        began = time.process_time()
        stored, header = intake.admit(made, NOW)
        log.append(stored, header, LeaderEpoch(0), NOW)
        appending_s += time.process_time() - began
        if number % 500 == 499:
            indexing_s += catch_up(index, log)
    indexing_s += catch_up(index, log)
    size_mb = log.size_bytes / MB
    files = list(log.path.glob("*.keyindex"))
    index_mb = sum(path.stat().st_size for path in files) / MB
    print(
        f"{messages:,} messages, {keys:,} keys, {size_mb:,.0f} MB in {len(log.segments)} segments"
    )
    print(f"  intake and append    {appending_s * 1e3 / size_mb:8.3f} ms of CPU per MB")
    print(f"  index                {indexing_s * 1e3 / size_mb:8.3f} ms of CPU per MB")
    print(f"  index files          {index_mb:8.1f} MB, {index_mb / size_mb:.1%} of the log")
    print(f"  in memory            {index.memory_bytes / MB:8.1f} MB")
    began = time.process_time()
    index = KeyIndex(Tools(bytes(range(16)), OpenFiles(directory.disk, 256)))
    catch_up(index, log)
    print(f"  after a start        {time.process_time() - began:8.3f} s of CPU")
    took = [look_up(index, log, key_of(chance.randrange(keys))) for _ in range(LOOK_UPS)]
    missing = [look_up(index, log, b"nobody-%d" % number) for number in range(LOOK_UPS)]
    for what, all_ in (("a key", took), ("no such key", missing)):
        times = sorted(seconds for seconds, _ in all_)
        middle, late = times[len(times) // 2], times[len(times) * 99 // 100]
        each = sum(found for _, found in all_) / len(all_)
        print(
            f"  look-up, {what:12}{middle * 1e6:8.0f} us of CPU, p99 {late * 1e6:.0f}, "
            f"{each:.1f} messages"
        )


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000_000
    keys = int(sys.argv[2]) if len(sys.argv) > 2 else messages // 2
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        run(Path(folder) / "data", messages, keys)


if __name__ == "__main__":
    main()
