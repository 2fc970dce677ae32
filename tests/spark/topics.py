"""Topics for the tests of the source: made, filled, trimmed and deleted in one line each."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from waystation.client.admin import Admin
from waystation.client.producer import Producer

T = TypeVar("T")


def ask(bootstrap: str, question: Callable[[Admin], Awaitable[T]]) -> T:
    async def asking() -> T:
        async with Admin(bootstrap) as admin:
            return await question(admin)

    return asyncio.run(asking())


def create(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> None:
    options = {name.replace("_", "."): value for name, value in configs.items()}
    ask(bootstrap, lambda admin: admin.create_topic(topic, partitions, configs=options))


def delete(bootstrap: str, topic: str) -> None:
    ask(bootstrap, lambda admin: admin.delete_topic(topic))


def trim(bootstrap: str, topic: str, before: int, partition: int = 0) -> None:
    ask(bootstrap, lambda admin: admin.delete_records({(topic, partition): before}))


def fill(
    bootstrap: str,
    topic: str,
    counts: Mapping[int, int],
    *,
    first: int = 0,
    timestamp: int | None = None,
    compression: str = "none",
) -> None:
    """``counts`` records for each partition; values are numbers from ``first`` on."""

    async def filling() -> None:
        async with Producer(bootstrap, compression=compression) as producer:
            for partition, count in counts.items():
                for number in range(first, first + count):
                    producer.submit(
                        topic,
                        f"value-{number}".encode(),
                        key=f"key-{number}".encode(),
                        headers={"number": str(number).encode()},
                        partition=partition,
                        timestamp=None if timestamp is None else timestamp + number,
                    )
                    await producer.drain()

    asyncio.run(filling())
