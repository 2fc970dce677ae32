"""Streams for the tests of the sink, and what must have arrived.

Every row has a number and one of few keys.  All rows of a key come in order, from one partition
of a topic or from one of Spark's own; so must they be in the topic that is written, each once.
"""

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.topics import ask
from waystation.client.admin import LATEST, Admin
from waystation.client.consumer import Consumer
from waystation.client.message import Message
from waystation.client.producer import Producer
from waystation.client.transaction_descriptions import ONGOING, PREPARED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

KEYS = 6
PER_BATCH = 300
_WITHIN_S = 80


def fill(bootstrap: str, topic: str, first: int, end: int) -> None:
    """The rows from ``first`` to ``end``."""

    async def filling() -> None:
        async with Producer(bootstrap) as producer:
            for number in range(first, end):
                producer.submit(topic, b"%d" % number, key=b"key-%d" % (number % KEYS))
                await producer.drain()

    asyncio.run(filling())


def rows(spark: "SparkSession", bootstrap: str, topic: str, **options: str) -> "DataFrame":
    """What the topic holds, ``PER_BATCH`` rows at a time."""
    reader = spark.readStream.format("waystation").option("bootstrap.servers", bootstrap)
    reader = reader.options(subscribe=topic, startingOffsets="earliest")
    reader = reader.options(maxOffsetsPerTrigger=str(PER_BATCH), **options)
    return reader.schema("key BINARY, value BINARY").load()


def counted(spark: "SparkSession") -> "DataFrame":
    """``PER_BATCH`` rows in each batch, without end; ``availableNow`` is one batch more."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", PER_BATCH)
        .option("numPartitions", 2)
        .option("startTimestamp", 1_772_366_400_000)
        .load()
        .selectExpr(f"concat('key-', value % {KEYS}) as key", "string(value) as value")
    )


def start(
    frame: "DataFrame",
    bootstrap: str,
    to: str,
    checkpoint: Path,
    sink: str = "waystation",
    *,
    endless: bool = False,
    **options: str,
) -> "StreamingQuery":
    """A query that ends when all is written, or is ``endless``."""
    writer = frame.writeStream.format(sink).option("bootstrap.servers", bootstrap)
    writer = writer.options(topic=to, checkpointLocation=str(checkpoint), **options)
    writer = writer if endless else writer.trigger(availableNow=True)
    return writer.start()


def copy(
    spark: "SparkSession", bootstrap: str, topic: str, to: str, checkpoint: Path, **options: str
) -> "StreamingQuery":
    """Write all that there is."""
    query = start(rows(spark, bootstrap, topic), bootstrap, to, checkpoint, **options)
    assert query.awaitTermination(_WITHIN_S), "the query does not end"
    return query


def held(bootstrap: str, topic: str) -> list[Message]:
    """What readers of committed records see, each partition in its order."""
    return asyncio.run(_held(bootstrap, topic))


async def _held(bootstrap: str, topic: str) -> list[Message]:
    found: list[Message] = []
    async with Admin(bootstrap) as admin:
        count = len((await admin.describe_topic(topic)).partitions)
        wanted = {(topic, partition): LATEST for partition in range(count)}
        ends = await admin.list_offsets(wanted, isolation="read_committed")
    async with Consumer(bootstrap=bootstrap, isolation="read_committed") as consumer:
        await consumer.assign(ends)
        while any(consumer.position(where) < end.offset for where, end in ends.items()):
            found += await consumer.poll(timeout_ms=100, max_messages=10_000)
    return found


def check_once(bootstrap: str, topic: str, count: int) -> None:
    """The rows up to ``count`` are there, each once, in order for each key; nothing is open."""
    by_key: dict[bytes | None, list[int]] = defaultdict(list)
    for message in held(bootstrap, topic):
        by_key[message.key].append(int(message.value or b"-1"))

    assert by_key == {b"key-%d" % key: [*range(key, count, KEYS)] for key in range(KEYS)}
    assert unended(bootstrap, topic) == []


def unended(bootstrap: str, topic: str) -> list[str]:
    """The transactions of sinks that are open in ``topic``, or wait for their outcome."""

    async def asking(admin: Admin) -> list[str]:
        found = []
        for one in await admin.list_transactions(states=[ONGOING, PREPARED]):
            told = (await admin.describe_transactions(one.transactional_id))[one.transactional_id]
            if any(where.topic == topic for where in told.partitions):
                found.append(f"{one.transactional_id} {one.state}")
        return found

    return ask(bootstrap, asking)
