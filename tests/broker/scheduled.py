"""Scheduled messages on the broker of one node, and what a reader of their topic finds."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from waystation.broker.broker import Broker
from waystation.broker.schedule_keeper import ScheduleKeeper
from waystation.cluster.topics import TopicSpec
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.node.node import Node
from waystation.node.settings import load
from waystation.partition.partition import ACKS_ALL, Partition
from waystation.records.batch import BatchBuilder, rows_of
from waystation.records.header import batches
from waystation.records.record import Headers, Row
from waystation.runtime.clock import Clock
from waystation.scheduling.schedule import Schedule

WITHIN_S = 20.0


@asynccontextmanager
async def running(path: Path, clock: Clock | None = None, **options: str) -> AsyncIterator[Broker]:
    """The broker of a whole node."""
    given = {
        "listen": "127.0.0.1:0",
        "http": "none",
        "log.dirs": str(path / "data"),
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    node = Node(load([("test", given)]), clock=clock)
    try:
        await node.start()
        yield node.broker
    finally:
        await node.stop()


async def make(broker: Broker, name: str = "orders", partitions: int = 1, **options: str) -> None:
    """A topic that can be scheduled for; returns once it can."""
    named = {key.replace("_", "."): value for key, value in options.items()}
    spec = TopicSpec(name, partitions, 1, options={"schedule.enable": "true", **named})
    outcome = (await broker.topics.create([spec]))[name]
    assert not isinstance(outcome, WaystationError), outcome
    await until(lambda: all(leads(broker, name, number) for number in range(partitions)))


def leads(broker: Broker, name: str, number: int) -> bool:
    """Whether the schedule is led here and loaded."""
    keeper = broker.schedules._keepers.get(TopicPartition(name + ".delay", number))
    return keeper is not None and keeper.leader is not None


async def until(holds: Callable[[], object], within_s: float = WITHIN_S) -> None:
    """Return once it holds."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.005)


def schedule(
    broker: Broker,
    *messages: tuple[bytes, Headers],
    topic: str = "orders.delay",
    number: int = 0,
) -> Offset:
    """Append one batch; where it begins."""
    builder = BatchBuilder()
    for value, headers in messages:
        assert builder.append(b"key-" + value, value, headers, timestamp=broker.clock.now())
    batch = memoryview(bytearray(builder.build()))
    return (
        broker.replicas.get(topic, number).append(batch, ACKS_ALL, broker.clock.now()).base_offset
    )


def at(moment: int) -> Headers:
    return (("deliver-at", b"%d" % moment), ("other", b"kept"))


def after(delay_ms: int) -> Headers:
    return (("deliver-after", b"%d" % delay_ms),)


def rows(partition: Partition) -> list[Row]:
    """Every committed message of a partition."""
    found: list[Row] = []
    offset = partition.log_start
    while True:
        region, behind = partition.read(offset, 1 << 20, at_least_one=True)
        if region is None:
            return found
        chunk = region.read()
        for position, header in batches(chunk):
            if not header.is_control:
                found += rows_of(chunk, position)
        offset = behind


def delivered(broker: Broker, topic: str = "orders", number: int = 0) -> list[bytes]:
    """The values in a topic."""
    return [row[3] or b"" for row in rows(broker.replicas.get(topic, number))]


def keeper_of(broker: Broker, number: int = 0) -> ScheduleKeeper:
    return broker.schedules._keepers[TopicPartition("orders.delay", number)]


def book(broker: Broker, number: int = 0) -> Schedule:
    found = keeper_of(broker, number).schedule
    assert found is not None, "it is not open"
    return found


def waiting(broker: Broker, number: int = 0) -> int:
    """How many messages wait."""
    return broker.schedules.count("orders.delay", number)


def soon(broker: Broker, delay_ms: int) -> int:
    return broker.clock.now() + delay_ms


class SetClock:
    """A clock that an operator sets: real time, and a step."""

    def __init__(self, real: Clock) -> None:
        self._real = real
        self.step_ms = 0

    def now(self) -> Millis:
        return Millis(self._real.now() + self.step_ms)

    def monotonic(self) -> float:
        return self._real.monotonic()


def values(count: int, first: int = 0) -> Sequence[bytes]:
    return [b"%05d" % number for number in range(first, first + count)]
