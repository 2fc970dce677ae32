"""What jobs ask the brokers before they read: which topics, and from where to where.

Jobs are ordinary functions, also in a notebook whose thread has an event loop of its own; each
question therefore runs on a loop in a thread that ends with it.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from waystation.client.admin import Admin
from waystation.client.offsets import EARLIEST, LATEST
from waystation.model.errors import UnknownTopicError
from waystation.model.ids import TopicPartition
from waystation.pipelines.failures import JobError
from waystation.pipelines.job import FORMAT, subscription
from waystation.runtime.loops import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Extent",
    "ask",
    "check_target",
    "existing",
    "extents",
    "found_topics",
    "records",
]

T = TypeVar("T")


class Extent(NamedTuple):
    """The offsets that a partition holds: from ``start`` up to, not including, ``end``."""

    start: int
    end: int


def ask(bootstrap: str, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Let ``work`` ask an admin, and wait for what it finds out."""

    async def working() -> T:
        async with Admin(bootstrap) as admin:
            return await work(admin)

    with ThreadPoolExecutor(1, "asking") as thread:
        return thread.submit(lambda: run(working())).result()


def found_topics(
    bootstrap: str, topics: str | Sequence[str], pattern: str | None = None
) -> tuple[str, ...]:
    """The topics that are meant, by name or by a pattern that their whole name matches."""
    if pattern is None:
        named = topics.split(",") if isinstance(topics, str) else topics
        names = tuple(dict.fromkeys(name.strip() for name in named if name.strip()))
        if not names:
            raise JobError("no topic is named: give at least one")
        return names
    listed = ask(bootstrap, lambda admin: admin.list_topics())
    names = tuple(one.name for one in listed if re.fullmatch(pattern, one.name))
    if not names:
        raise JobError(f"no topic's name matches {pattern!r}: `waystation topic list` shows them")
    return names


def check_target(bootstrap: str, topic: str, option: str) -> None:
    """An error if there is no such topic to write to; before a job has begun it costs nothing."""
    try:
        ask(bootstrap, lambda admin: admin.describe_topic(topic))
    except UnknownTopicError:
        raise JobError(
            f"{option}: there is no topic {topic} at {bootstrap}. "
            f"Remedy: waystation topic create {topic} --bootstrap {bootstrap}"
        ) from None


def extents(bootstrap: str, topics: Iterable[str]) -> dict[TopicPartition, Extent]:
    """What each partition of ``topics`` holds now, in their order."""

    async def work(admin: Admin) -> dict[TopicPartition, Extent]:
        return await existing(admin, topics)

    return ask(bootstrap, work)


async def existing(admin: Admin, topics: Iterable[str]) -> dict[TopicPartition, Extent]:
    """The same, for those who have more to ask."""
    partitions = [
        TopicPartition(name, one.partition)
        for name in topics
        for one in (await admin.describe_topic(name)).partitions
    ]
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    return {where: Extent(starts[where].offset, ends[where].offset) for where in partitions}


def records(
    spark: "SparkSession",
    bootstrap: str,
    topics: Sequence[str],
    columns: str,
    **options: str,
) -> "DataFrame":
    """The records of ``topics`` as a frame of some ``columns`` (``name type, ...``).

    What is not among the columns is not read by Spark at all.
    """
    told = {"bootstrap.servers": bootstrap, **subscription(topics), **options}
    return spark.read.format(FORMAT).schema(columns).options(**told).load()
