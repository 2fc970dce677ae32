"""Frames as records of topics: ``df.write.format("waystation")`` and ``df.writeStream``.

Spark makes a writer where a write is planned and pickles it to the tasks; of a stream it makes
another, in a process of its own, for every commit.  So a writer holds options and nothing else,
and making one changes nothing.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from waystation.client.admin import Admin
from waystation.client.producer import Producer
from waystation.model.errors import UnknownTopicError
from waystation.spark.errors import BadOptionError, speaking_plainly
from waystation.spark.sink_columns import check_columns
from waystation.spark.sink_options import WriteOptions, parse_write_options

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchTopicWriter", "StreamTopicWriter", "batch_writer", "stream_writer"]


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task has written."""

    rows: int


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> "BatchTopicWriter":
    """For ``df.write``."""
    _refuse_overwriting(overwrite, 'mode("overwrite")', 'mode("append")')
    understood = parse_write_options(options, stream=False)
    check_columns(schema, understood.topic)
    return BatchTopicWriter(understood)


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> "StreamTopicWriter":
    """For ``df.writeStream``."""
    _refuse_overwriting(overwrite, 'outputMode("complete")', 'outputMode("update")')
    understood = parse_write_options(options, stream=True)
    check_columns(schema, understood.topic)
    return StreamTopicWriter(understood)


def _refuse_overwriting(overwrite: bool, asked: str, instead: str) -> None:
    if overwrite:
        raise BadOptionError(
            f"records are only ever added to a topic, and {asked} replaces what there is: use "
            f"{instead}"
        )


class BatchTopicWriter(DataSourceArrowWriter):
    """One ``df.write``."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Runs in a task."""
        with speaking_plainly():
            return Written(asyncio.run(_send(self._options, iterator)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Runs on the driver when every task has written."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Runs on the driver when a task failed for good."""


class StreamTopicWriter(DataSourceStreamArrowWriter):
    """The sink of a streaming query."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Runs in a task."""
        with speaking_plainly():
            return Written(asyncio.run(_send(self._options, iterator)))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Runs on the driver when every task has written."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Runs on the driver when a task failed for good."""


async def _send(options: WriteOptions, batches: "Iterator[pa.RecordBatch]") -> int:
    """Every row, one after the other; returns how many."""
    rows = 0
    known: set[str] = set()
    producer_options = options.producer
    async with (
        Admin(options.bootstrap, **options.connection) as admin,
        Producer(options.bootstrap, **producer_options) as producer,
    ):
        for batch in batches:
            for row in batch.to_pylist():
                topic = options.topic or row.get("topic")
                if topic not in known:
                    await _check_topic(admin, topic)
                    known.add(topic)
                producer.submit(topic, **_record(row))
                await producer.drain()
            rows += batch.num_rows
    return rows


def _record(row: dict[str, Any]) -> dict[str, Any]:
    moment = row.get("timestamp")
    return {
        "value": row["value"],
        "key": row.get("key"),
        "headers": [(one["key"], one["value"]) for one in row.get("headers") or ()],
        "partition": row.get("partition"),
        "timestamp": None if moment is None else round(moment.timestamp() * 1_000),
    }


async def _check_topic(admin: Admin, topic: str | None) -> None:
    if not topic:
        raise BadOptionError("column topic is null in a row: say where it goes")
    try:
        await admin.describe_topic(topic)
    except UnknownTopicError:
        raise UnknownTopicError(
            f"topic {topic} does not exist: create it with `waystation topic create {topic}`"
        ) from None
