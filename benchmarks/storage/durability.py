"""What acks=all on disk costs: a pool of sync threads against one journal per directory.

An open loop offers a steady load: batches arrive on a schedule whether or not earlier ones
are durable, and each is timed from the moment it was due (no coordinated omission).

- ``pool``: a batch is appended to its partition's file; that file is queued for an fdatasync
  by one of N threads; while it waits or runs, further batches of the partition join the next.
- ``journal``: a batch is appended to its partition's file and to one journal; one thread
  syncs the journal over and over, and everything before each sync is durable.
- ``log``: the pool as it is built, ``Log`` and ``Flusher``, with offsets, indexes and all.

Run: python -m benchmarks.storage.durability [--partitions 100] [--rate 12000] [--seconds 4]
"""

import argparse
import os
import queue
import random
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import UUID

from benchmarks.storage.append import EPOCH, NOW, batch_of

from waystation.model.errors import StorageError
from waystation.model.ids import NodeId, TopicId, TopicPartition
from waystation.model.offsets import Offset
from waystation.model.topics import TopicSettings
from waystation.records.header import peek
from waystation.storage.directory import DataDirectory
from waystation.storage.disk import RealDisk
from waystation.storage.flusher import Flusher
from waystation.storage.log import Log
from waystation.storage.settings import StorageSettings

RECORD_BYTES = 1024


@dataclass
class Load:
    """The offered load and what became of it."""

    partitions: int
    rate: int
    records_per_batch: int
    seconds: float
    waited_s: list[float] = field(default_factory=list)
    syncs: int = 0
    cpu_s: float = 0.0
    elapsed_s: float = 0.0


class Pool:
    """One file per partition, N threads; at most one sync per file at a time."""

    def __init__(self, folder: str, load: Load, threads: int, preallocate: bool) -> None:
        self.name = f"pool of {threads}" + (", preallocated" if preallocate else "")
        self.files = [_create(folder, str(n), preallocate) for n in range(load.partitions)]
        self.waiting: list[list[float]] = [[] for _ in self.files]
        self.busy = [False] * load.partitions
        self.work: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.synced: deque[int] = deque()
        self.in_sync: list[list[float]] = [[] for _ in self.files]
        self.load = load
        self.threads = [threading.Thread(target=self._sync) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def append(self, partition: int, batch: bytes, due: float) -> None:
        os.write(self.files[partition], batch)
        self.waiting[partition].append(due)
        if not self.busy[partition]:
            self._begin(partition)

    def collect(self) -> None:
        now = time.perf_counter()
        while self.synced:
            partition = self.synced.popleft()
            self.load.waited_s += [now - due for due in self.in_sync[partition]]
            self.load.syncs += 1
            self.busy[partition] = False
            if self.waiting[partition]:
                self._begin(partition)

    def idle(self) -> bool:
        return not any(self.busy)

    def close(self) -> None:
        for _ in self.threads:
            self.work.put(None)
        for thread in self.threads:
            thread.join()
        for file in self.files:
            os.close(file)

    def _begin(self, partition: int) -> None:
        self.busy[partition] = True
        self.in_sync[partition], self.waiting[partition] = self.waiting[partition], []
        self.work.put(partition)

    def _sync(self) -> None:
        while (partition := self.work.get()) is not None:
            os.fdatasync(self.files[partition])
            self.synced.append(partition)


class Journal:
    """One journal beside the partition files; one thread that syncs it."""

    def __init__(self, folder: str, load: Load) -> None:
        self.name = "one journal"
        self.files = [_create(folder, str(n), preallocate=False) for n in range(load.partitions)]
        self.journal = _create(folder, "journal", preallocate=False)
        self.waiting: list[float] = []
        self.in_sync: list[float] = []
        self.work: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
        self.synced: deque[bool] = deque()
        self.busy = False
        self.load = load
        self.thread = threading.Thread(target=self._sync)
        self.thread.start()

    def append(self, partition: int, batch: bytes, due: float) -> None:
        os.write(self.files[partition], batch)
        os.write(self.journal, batch)
        self.waiting.append(due)
        if not self.busy:
            self._begin()

    def collect(self) -> None:
        now = time.perf_counter()
        while self.synced:
            self.synced.popleft()
            self.load.waited_s += [now - due for due in self.in_sync]
            self.load.syncs += 1
            self.busy = False
            if self.waiting:
                self._begin()

    def idle(self) -> bool:
        return not self.busy

    def close(self) -> None:
        self.work.put(None)
        self.thread.join()
        for file in (*self.files, self.journal):
            os.close(file)

    def _begin(self) -> None:
        self.busy = True
        self.in_sync, self.waiting = self.waiting, []
        self.work.put(True)

    def _sync(self) -> None:
        while self.work.get() is not None:
            os.fdatasync(self.journal)
            self.synced.append(True)


class Logs:
    """The real thing: a log per partition and a flusher, posting to this loop."""

    def __init__(self, folder: str, load: Load, threads: int) -> None:
        self.name = f"log, {threads} threads"
        self.directory = DataDirectory(Path(folder), RealDisk(), StorageSettings(), NodeId(1))
        self.logs = [
            self.directory.create_log(TopicPartition("t", n), TopicId(UUID(int=1)), TopicSettings())
            for n in range(load.partitions)
        ]
        self.batch = batch_of(RECORD_BYTES, load.records_per_batch)
        self.header = peek(self.batch)
        self.posted: deque[Callable[[], None]] = deque()
        self.flusher = Flusher(threads, self.posted.append, self)
        self.waiting: dict[Log, deque[tuple[int, float]]] = {log: deque() for log in self.logs}
        self.load = load

    def observe(self, _seconds: float) -> None:
        self.load.syncs += 1

    def append(self, partition: int, _batch: bytes, due: float) -> None:
        log = self.logs[partition]
        log.append(memoryview(self.batch), self.header, EPOCH, NOW)
        self.waiting[log].append((log.log_end, due))
        self.flusher.request(log, self._flushed)

    def _flushed(self, log: Log, end: Offset | StorageError) -> None:
        assert not isinstance(end, StorageError), end
        now, waiting = time.perf_counter(), self.waiting[log]
        while waiting and waiting[0][0] <= end:
            self.load.waited_s.append(now - waiting.popleft()[1])

    def collect(self) -> None:
        while self.posted:
            self.posted.popleft()()

    def idle(self) -> bool:
        return not any(self.waiting.values())

    def close(self) -> None:
        self.flusher.close()
        self.directory.unlock()


def offer(load: Load, to: Pool | Journal | Logs) -> None:
    """Append batches when they are due, to random partitions, until the time is over."""
    chance = random.Random(7)
    batch = chance.randbytes(RECORD_BYTES * load.records_per_batch)
    gap_s = load.records_per_batch / load.rate
    cpu_before, started = time.process_time(), time.perf_counter()
    due = started
    while due < started + load.seconds:
        now = time.perf_counter()
        while due <= now:
            to.append(chance.randrange(load.partitions), batch, due)
            due += gap_s
        to.collect()
        time.sleep(0.0001)
    while not to.idle():
        to.collect()
        time.sleep(0.0001)
    load.elapsed_s = time.perf_counter() - started
    load.cpu_s = time.process_time() - cpu_before


def report(name: str, load: Load) -> None:
    waits = sorted(load.waited_s)
    at = {p: waits[min(len(waits) - 1, int(len(waits) * p))] * 1e3 for p in (0.5, 0.99, 0.999)}
    print(
        f"{name:24} p50 {at[0.5]:7.2f}  p99 {at[0.99]:7.2f}  p99.9 {at[0.999]:7.2f} ms   "
        f"{load.syncs / load.elapsed_s:6.0f} syncs/s   "
        f"{load.cpu_s / load.elapsed_s:5.1%} of a core",
        flush=True,
    )


def _create(folder: str, name: str, preallocate: bool) -> int:
    file = os.open(Path(folder) / name, os.O_CREAT | os.O_WRONLY)
    if preallocate:
        os.posix_fallocate(file, 0, 16 << 20)
    os.fsync(file)
    return file


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--partitions", type=int, default=100)
    arguments.add_argument("--rate", type=int, default=12_000, help="records per second")
    arguments.add_argument("--records-per-batch", type=int, default=3)
    arguments.add_argument("--seconds", type=float, default=4.0)
    arguments.add_argument("--folder", default=None, help="on the disk to be measured")
    given = arguments.parse_args()
    print(f"{given.partitions} partitions, {given.rate} records/s of {RECORD_BYTES} bytes")
    contenders: list[Callable[[str, Load], Pool | Journal | Logs]] = [
        *(partial(Pool, threads=threads, preallocate=False) for threads in (1, 2, 4, 8, 16)),
        partial(Pool, threads=8, preallocate=True),
        Journal,
        *(partial(Logs, threads=threads) for threads in (4, 8)),
    ]
    for contender in contenders:
        folder = tempfile.mkdtemp(dir=given.folder)
        load = Load(given.partitions, given.rate, given.records_per_batch, given.seconds)
        to = contender(folder, load)
        offer(load, to)
        to.close()
        report(to.name, load)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
