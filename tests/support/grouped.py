"""Consumers in a group whose coordinator is scripted, and what tests do with them."""

import asyncio
from collections.abc import Callable
from random import Random

from tests.support.scripted_group import GroupBroker
from waystation.client.consumer import Consumer
from waystation.client.message import Message as Read
from waystation.client.options import ConsumerOptions
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis
from waystation.records.batch import BatchBuilder

FAST: ConsumerOptions = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 2,
    "metadata_timeout_ms": 200,
    "fetch_max_wait_ms": 5,
    "session_timeout_ms": 1_000,
    "heartbeat_interval_ms": 5,
}

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)

PROTOCOLS = ("classic", "consumer")


def consumer_of(broker: GroupBroker, **options: object) -> Consumer:
    return Consumer(
        "billing",
        ["orders"],
        bootstrap=broker.bootstrap,
        connect=broker.connect,
        chance=Random(7),
        **FAST | options,  # type: ignore[arg-type,operator]
    )


def fill(broker: GroupBroker, partition: int, count: int) -> None:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(None, b"%d" % number, timestamp=Millis(number))
    broker.partitions[partition].append(builder.build())


async def read(consumer: Consumer, count: int) -> list[Read]:
    found: list[Read] = []
    while len(found) < count:
        messages = await consumer.poll(timeout_ms=5_000, max_messages=count - len(found))
        assert messages, f"only {len(found)} of {count} came"
        found += messages
    return found


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.001)
