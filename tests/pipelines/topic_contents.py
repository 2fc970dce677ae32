"""Topics for the tests of jobs from topic to topic: filled, read back, compared by value."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from waystation import Admin, Consumer, Producer
from waystation.client.offsets import LATEST
from waystation.model.ids import TopicPartition


class Read(NamedTuple):
    """One record as a consumer of committed records sees it."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]


def create(bootstrap: str, *topics: str, partitions: int = 2) -> None:
    """Topics that keep what is in them: tests choose timestamps that are long past."""

    async def work() -> None:
        async with Admin(bootstrap) as admin:
            for topic in topics:
                await admin.create_topic(topic, partitions, configs={"retention.ms": "-1"})

    asyncio.run(work())


def fill(bootstrap: str, topic: str, records: Iterable[dict[str, Any]]) -> None:
    """Append; what a record is made of is what ``Producer.submit`` takes."""

    async def work() -> None:
        async with Producer(bootstrap) as producer:
            for record in records:
                producer.submit(topic, **record)
                await producer.drain()

    asyncio.run(work())


def contents(bootstrap: str, topic: str, *, settled: bool = True) -> list[Read]:
    """All committed records, each partition in its order; ``settled`` if nothing may be open."""

    async def work() -> list[Read]:
        async with Admin(bootstrap) as admin:
            where = [
                TopicPartition(topic, one.partition)
                for one in (await admin.describe_topic(topic)).partitions
            ]
        found: list[Read] = []
        for place in where:
            found += await _all_of(bootstrap, place, settled)
        return found

    return asyncio.run(work())


def values(found: Sequence[Read]) -> list[bytes | None]:
    return [one.value for one in found]


def by_key(found: Sequence[Read]) -> dict[bytes | None, list[bytes | None]]:
    """The values of each key in their order."""
    grouped: dict[bytes | None, list[bytes | None]] = {}
    for one in found:
        grouped.setdefault(one.key, []).append(one.value)
    return grouped


def forget_commits(checkpoint: Path) -> None:
    """As if the driver had died between the sink's commit and Spark's: the batch is repeated."""
    for left in (checkpoint / "commits").iterdir():
        left.unlink()


async def _all_of(bootstrap: str, where: TopicPartition, settled: bool) -> list[Read]:
    async with Admin(bootstrap) as admin:
        committed, log_end = [
            (await admin.list_offsets({where: LATEST}, isolation=level))[where].offset
            for level in ("read_committed", "read_uncommitted")
        ]
    if settled:
        assert committed == log_end, f"{where}: a transaction is open at offset {committed}"
    found: list[Read] = []
    async with Consumer(
        bootstrap=bootstrap, start="earliest", isolation="read_committed"
    ) as consumer:
        await consumer.assign([where])
        empty = 0
        # Behind the last record there may be markers only, which nobody is given.
        while consumer.position(where) < committed and empty < 3:
            records = await consumer.poll(timeout_ms=100, max_messages=10_000)
            empty = 0 if records else empty + 1
            found += [
                Read(one.partition, one.key, one.value, one.timestamp, tuple(one.headers))
                for one in records
            ]
    return found
