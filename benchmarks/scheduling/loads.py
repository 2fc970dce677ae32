"""Loads for benchmarks of schedules: many that wait, some that fall due, and one who reads."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

from waystation import Admin, Consumer, Message, Producer
from waystation.client.errors import BufferFullError
from waystation.records.batch import BatchBuilder
from waystation.scheduling.topics import companion_of

YEAR_MS = 365 * 86_400_000
_BATCH_RECORDS = 1_000
_VALUE = bytes(100)
_QUIET_S, _QUIET_SHARE = 2.0, 0.15
_AHEAD_MS = 86_400_000
"""What only waits is due tomorrow at the earliest."""


class Lateness(NamedTuple):
    """How late messages came, in ms: when the broker decided, and when a consumer had them."""

    count: int
    doubled: int
    earliest: float
    p50: float
    p99: float
    worst: float
    decided_p99: float
    decided_earliest: float

    @classmethod
    def of(cls, found: list[tuple[int, int, float]], doubled: int) -> Lateness:
        """From when each was due, decided upon and read."""
        read = sorted(at - due for due, _, at in found)
        decided = sorted(at - due for due, at, _ in found)
        return cls(
            len(found),
            doubled,
            read[0],
            _part(read, 0.5),
            _part(read, 0.99),
            read[-1],
            _part(decided, 0.99),
            decided[0],
        )


def _part(ordered: list[Any], share: float) -> float:
    return float(ordered[min(int(len(ordered) * share), len(ordered) - 1)])


class _Whole(BatchBuilder):
    """A batch that is made here and sent as it is."""

    level: int | None = None


def now_ms() -> float:
    return time.time() * 1_000


def cpu_s_of(pid: int) -> float:
    """What a process has used of all cores so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_bytes_of(pid: int) -> int:
    """The most memory that a process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None, "no VmHWM"
    return int(found[1]) * 1024


async def create(bootstrap: str, topic: str, partitions: int, replication: int = 1) -> None:
    """A topic for which messages may wait."""
    async with Admin(bootstrap) as admin:
        options = {"schedule.enable": "true"}
        await admin.create_topic(topic, partitions, replication_factor=replication, configs=options)
        await admin.schedules(topic).count()


async def fill(bootstrap: str, topic: str, partitions: int, pending: int) -> float:
    """Let so many messages wait, due at random within a year from tomorrow on; how long it took."""
    began = time.monotonic()
    base, chance = int(now_ms()) + _AHEAD_MS, Random(8)
    dues = (base + chance.randrange(YEAR_MS - 2 * _AHEAD_MS) for _ in range(pending))
    await _send_whole(bootstrap, topic, partitions, dues, pending)
    return time.monotonic() - began


async def settled(bootstrap: str, topic: str, pending: int, pids: Sequence[int]) -> float:
    """Wait until all of it is known to wait, and followers too have nothing to do; how long."""
    began = time.monotonic()
    async with Admin(bootstrap) as admin:
        while await admin.schedules(topic).count() != pending:
            await asyncio.sleep(0.5)
    while True:
        before = [cpu_s_of(pid) for pid in pids]
        await asyncio.sleep(_QUIET_S)
        used = [cpu_s_of(pid) - was for pid, was in zip(pids, before, strict=True)]
        if max(used) < _QUIET_SHARE * _QUIET_S:
            return time.monotonic() - began


async def fall_due(
    bootstrap: str, topic: str, partitions: int, rate: int, seconds: float, lead_s: float
) -> int:
    """Let messages wait that are due at an even rate, from ``lead_s`` on; when the first one is.

    The value of each is the moment at which it is due, and its number.
    """
    count, first = int(rate * seconds), now_ms() + lead_s * 1_000
    dues = [int(first + number * 1_000 / rate) for number in range(count)]
    await _send_whole(bootstrap, topic, partitions, iter(dues), count, named=True)
    assert now_ms() < first, f"it took longer than {lead_s} s to send {count}: give more --lead"
    return dues[0]


async def _send_whole(
    bootstrap: str,
    topic: str,
    partitions: int,
    dues: Iterator[int],
    count: int,
    *,
    named: bool = False,
) -> None:
    place = companion_of(topic)
    async with Producer(bootstrap, create_topics=False, delivery_timeout_ms=600_000) as producer:
        assert await producer.partitions_of(place) == partitions
        for number in range(-(-count // _BATCH_RECORDS)):
            batch = _Whole(limit_bytes=1 << 20)
            moment = int(now_ms())
            first = number * _BATCH_RECORDS
            for each in range(first, min(first + _BATCH_RECORDS, count)):
                said = b"%d" % next(dues)
                value = b"%b-%d" % (said, each) if named else _VALUE
                batch.append(None, value, (("deliver-at", said),), timestamp=moment)
            while True:
                try:
                    producer.submit_batch(place, number % partitions, cast("Any", batch))
                    break
                except BufferFullError:
                    await producer.drain()
            await producer.drain()
        await producer.flush()


class Reader:
    """Reads a topic, and notes when each message was due, decided upon and read."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.found: dict[int, tuple[int, int, float]] = {}
        self.doubled = 0
        self._bootstrap, self._topic = bootstrap, topic
        self._offsets: dict[tuple[int, int], None] = {}
        self._reading: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def __aenter__(self) -> Reader:
        self._reading = asyncio.create_task(self._read())
        await self._ready.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._reading is not None
        self._reading.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading

    async def until(self, count: int, within_s: float) -> None:
        """Wait for so many; the rest is lost, as far as this can tell."""
        deadline = time.monotonic() + within_s
        while len(self.found) < count and time.monotonic() < deadline:
            assert self._reading is not None
            if self._reading.done():
                await self._reading
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)

    def lateness(self) -> Lateness:
        """Of all that were read."""
        return Lateness.of(list(self.found.values()), self.doubled)

    async def _read(self) -> None:
        async with Consumer(
            topics=[self._topic], bootstrap=self._bootstrap, start="earliest"
        ) as consumer:
            self._ready.set()
            while True:
                read = await consumer.poll(timeout_ms=200, max_messages=5_000)
                at = now_ms()
                for one in read:
                    self._note(one, at)

    def _note(self, one: Message, at: float) -> None:
        due, _, number = (one.value or b"").partition(b"-")
        if not number or (one.partition, one.offset) in self._offsets:
            return
        self._offsets[one.partition, one.offset] = None
        self.doubled += int(number) in self.found
        self.found[int(number)] = (int(due), one.timestamp, at)
