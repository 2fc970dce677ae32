"""Frames as records of topics: ``df.write.format("waystation")`` and ``df.writeStream``.

Spark makes a writer where a write is planned and pickles it to the tasks; of a stream it makes
another, in a process of its own, for every commit.  So a writer holds options and nothing else,
making one changes nothing, and what a commit has to know comes to it in the tasks' messages.

Exactly once, a batch is named by three things that survive every death: the sink, the query
that Spark's checkpoint belongs to, and Spark's number of the batch.  The fourth, the run, is new
with every start of the query, and shuts out what is left of the one before
(``decisions.py`` says how).  What a task does is in ``sink_writing.py``.
"""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from waystation.client.admin import Admin
from waystation.client.errors import BrokerUnreachableError
from waystation.model.errors import UnknownTopicError
from waystation.spark.errors import BadOptionError, speaking_plainly
from waystation.spark.sink_cluster import check_two_phase, open_sink
from waystation.spark.sink_columns import check_columns
from waystation.spark.sink_options import WriteOptions, parse_write_options
from waystation.spark.sink_state import Attempt, Task
from waystation.spark.sink_steps import TaskMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

__all__ = ["BatchTopicWriter", "StreamTopicWriter", "Written", "batch_writer", "stream_writer"]

_BATCH_PROPERTY: Final = "streaming.sql.batchId"
_QUERY_PROPERTY: Final = "sql.streaming.queryId"
_RUN_PROPERTY: Final = "spark.jobGroup.id"

_NO_QUERY: Final = "batch"
"""What stands for the query where none has a checkpoint."""

Messages = Sequence[WriterCommitMessage | None]


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task has written; of rows that wait for the driver it knows which they are."""

    rows: int
    waiting: TaskMessage | None = None


# --- planning -----------------------------------------------------------------------------------


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> "BatchTopicWriter":
    """For ``df.write``; what can be known to be wrong is said now."""
    _refuse_overwriting(overwrite, 'mode("overwrite")', 'mode("append")')
    understood = parse_write_options(options, stream=False)
    check_columns(schema, understood.topic)
    asyncio.run(_check_target(understood))
    return BatchTopicWriter(understood)


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> "StreamTopicWriter":
    """For ``df.writeStream``; a commit makes one too, so that brokers may be away just now."""
    _refuse_overwriting(
        overwrite, 'outputMode("complete")', 'outputMode("append"), or foreachBatch with batchId'
    )
    understood = parse_write_options(options, stream=True)
    check_columns(schema, understood.topic)
    with suppress(BrokerUnreachableError):
        asyncio.run(_check_brokers(understood))
    return StreamTopicWriter(understood)


def _refuse_overwriting(overwrite: bool, asked: str, instead: str) -> None:
    if overwrite:
        raise BadOptionError(
            f"records are only ever added to a topic, and {asked} replaces what there is: use "
            f"{instead}"
        )


async def _check_target(options: WriteOptions) -> None:
    try:
        async with Admin(options.bootstrap, **options.connection) as admin:
            if options.topic:
                await admin.describe_topic(options.topic)
        await _check_brokers(options)
    except BrokerUnreachableError as error:
        raise BadOptionError(f"bootstrap.servers: {error}") from None
    except UnknownTopicError:
        raise UnknownTopicError(
            f"topic {options.topic} does not exist: create it with `waystation topic create "
            f"{options.topic}`"
        ) from None


async def _check_brokers(options: WriteOptions) -> None:
    if options.exactly_once:
        sink = options.sink_id or f"for {options.topic or 'several topics'}"
        await check_two_phase(options.bootstrap, sink, **options.connection)


# --- writing ------------------------------------------------------------------------------------


class BatchTopicWriter(DataSourceArrowWriter):
    """One ``df.write``: a run of its own, whoever repeats its tasks."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._run = str(uuid.uuid4())

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Runs in a task."""
        options = self._options
        sink = options.sink_id or f"{_NO_QUERY}-{self._run}"
        attempt = Attempt(sink, _NO_QUERY, self._run, options.batch_id)
        return _write(options, attempt, iterator)

    def commit(self, messages: Messages) -> None:
        """Runs on the driver when every task has written."""
        _commit(self._options, messages)

    def abort(self, messages: Messages) -> None:
        """Runs on the driver when a task failed for good."""
        _abort(self._options, messages)


class StreamTopicWriter(DataSourceStreamArrowWriter):
    """The sink of a streaming query."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Runs in a task."""
        return _write(self._options, self._attempt(), iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Runs on the driver when every task has written."""
        waiting = _waiting(messages)
        assert all(one.attempt.batch == batchId for one in waiting), (
            f"tasks wrote {[one.attempt for one in waiting]}, the driver commits {batchId}"
        )
        _commit(self._options, messages)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Runs on the driver when a task failed for good, or the commit did."""
        _abort(self._options, messages)

    def _attempt(self) -> Attempt:
        context = TaskContext.get()
        assert context is not None, "a task writes, the driver does not"
        batch = context.getLocalProperty(_BATCH_PROPERTY)
        query = context.getLocalProperty(_QUERY_PROPERTY)
        run = context.getLocalProperty(_RUN_PROPERTY)
        if batch is None or query is None or run is None:
            raise BadOptionError(
                "Spark does not tell its tasks which batch they write: use pyspark 4.1 or later"
            )
        return Attempt(self._options.sink_id or query, query, run, int(batch))


def _write(options: WriteOptions, attempt: Attempt, batches: "Iterator[pa.RecordBatch]") -> Written:
    # Imported here: Arrow takes a while to load, and neither planning nor committing needs it.
    from waystation.spark.sink_writing import Part, write_at_least_once, write_exactly_once

    with speaking_plainly():
        if not options.exactly_once:
            return Written(write_at_least_once(options, batches))
        waiting = write_exactly_once(options, Part(attempt, _task()), batches)
        return Written(0 if waiting is None else waiting.rows, waiting)


def _task() -> Task:
    """The attempt at the stage is not told to Python: ``make_way`` finds an id that is free."""
    context = TaskContext.get()
    assert context is not None, "a task writes, the driver does not"
    return Task(context.partitionId(), context.attemptNumber())


# --- deciding -----------------------------------------------------------------------------------


def _commit(options: WriteOptions, messages: Messages) -> None:
    async def committing() -> None:
        async with open_sink(options.bootstrap, **options.connection) as steps:
            await steps.commit(waiting)

    if waiting := _waiting(messages):
        with speaking_plainly():
            asyncio.run(committing())


def _abort(options: WriteOptions, messages: Messages) -> None:
    async def aborting() -> None:
        async with open_sink(options.bootstrap, **options.connection) as steps:
            await steps.abort(waiting)

    if waiting := _waiting(messages):
        with speaking_plainly():
            asyncio.run(aborting())


def _waiting(messages: Messages) -> list[TaskMessage]:
    return [
        message.waiting
        for message in messages
        if isinstance(message, Written) and message.waiting is not None
    ]
