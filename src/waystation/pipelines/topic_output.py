"""A job's rows into a topic, each once, however often the job is killed.

Two promises:

1. What the sink calls the job is pinned beside the checkpoint before anything is written: a batch
   that is repeated after a crash is recognised by it and dropped.
2. A checkpoint belongs to one topic.  Rows for another one under the same checkpoint would begin
   in the middle, so they are refused.

Rows leave in the order in which their task has them.  A job whose rows were shuffled on the way
puts them in order again with ``start_in_order``, which costs one more shuffle.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waystation.pipelines.failures import JobError
from waystation.pipelines.job import FORMAT, as_option
from waystation.spark.sink_options import EXACTLY_ONCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from waystation.pipelines.checkpoint import Checkpoint

__all__ = ["pinned_sink", "start_in_order", "start_into_topic", "started"]

_PIN = "output.json"
_NOTHING = object()
_BY_COLUMN = "(named by each row)"


def start_into_topic(
    frame: "DataFrame",
    *,
    bootstrap: str,
    topic: str | None,
    checkpoint: str | Path,
    by_column: bool = False,
    sink_id: str | None = None,
    first_sink_id: str | None = None,
    available_now: bool = False,
    every_s: float = 10.0,
    output_mode: str = "append",
    name: str | None = None,
    options: Mapping[str, object] | None = None,
) -> "StreamingQuery":
    """Start writing ``frame`` into ``topic``, and return the running query.

    Without a ``topic``, or ``by_column``, each row names its own in a column ``topic``.
    ``sink_id`` is the user's wish; ``first_sink_id`` is what a fresh checkpoint gets where there
    is none.  A name that is the same for every checkpoint of a job lets the sink notice that one
    was lost; without either it is random.  ``options`` are those of the sink, and win.
    """
    to = _Destination(bootstrap, topic, str(checkpoint), options or {})
    told = to.pinned(frame, sink_id, first_sink_id)
    if by_column:
        told.pop("topic", None)
    writer = frame.writeStream.outputMode(output_mode)
    if output_mode == "append":
        writer = writer.format(FORMAT)
        for option, value in told.items():
            writer = writer.option(option, value)
    else:  # which Spark does not allow to sinks in Python, but to batches
        writer = writer.foreachBatch(partial(_write, told))
    return started(
        writer,
        checkpoint=to.checkpoint,
        name=name,
        available_now=available_now,
        every_s=every_s,
    )


def start_in_order(
    frame: "DataFrame",
    *,
    together: str,
    order_by: Sequence[str],
    columns: Sequence[str],
    bootstrap: str,
    topic: str,
    checkpoint: str | Path,
    sink_id: str | None = None,
    first_sink_id: str | None = None,
    available_now: bool = False,
    every_s: float = 10.0,
    name: str | None = None,
    options: Mapping[str, object] | None = None,
) -> "StreamingQuery":
    """As ``start_into_topic``, but each batch is put in order before it is written.

    Rows with the same ``together`` (an expression) are written by one task, ordered by the
    columns ``order_by``; only ``columns`` are written.
    """
    to = _Destination(bootstrap, topic, str(checkpoint), options or {})
    told = to.pinned(frame, sink_id, first_sink_id)
    write = partial(_write_in_order, together, tuple(order_by), tuple(columns), told)
    writer = frame.writeStream.outputMode("append").foreachBatch(write)
    return started(
        writer,
        checkpoint=to.checkpoint,
        name=name,
        available_now=available_now,
        every_s=every_s,
    )


@dataclass(frozen=True)
class _Destination:
    """Where rows go, and which checkpoint knows how many have gone."""

    bootstrap: str
    topic: str | None
    checkpoint: str
    options: Mapping[str, object] = field(default_factory=dict)

    def pinned(
        self, frame: "DataFrame", sink_id: str | None, first_sink_id: str | None
    ) -> dict[str, str]:
        """The sink's options, under the name that the sink has for this checkpoint."""
        from waystation.pipelines.checkpoint import Checkpoint

        notes = Checkpoint(frame.sparkSession, self.checkpoint)
        first = first_sink_id or f"topic-{uuid.uuid4().hex}"
        known = pinned_sink(notes, {"topic": self.topic}, sink_id, first)
        told = {
            "bootstrap.servers": self.bootstrap,
            **({} if self.topic is None else {"topic": self.topic}),
            **({"sinkId": known} if self._is_exact() else {}),
            **self.options,
        }
        return {name: as_option(value) for name, value in told.items()}

    def _is_exact(self) -> bool:
        """Whether the sink is to remember what it has, which needs brokers with two phases."""
        said = {name.lower(): as_option(value) for name, value in self.options.items()}
        return said.get("deliveryguarantee", EXACTLY_ONCE) == EXACTLY_ONCE


def pinned_sink(
    notes: "Checkpoint", output: Mapping[str, str | None], sink_id: str | None, first: str
) -> str:
    """The name that the sink has for this checkpoint; chosen and pinned if it is fresh.

    ``output`` says what is written to, as ``{"topic": "orders"}``.
    """
    ((kind, place),) = output.items()
    pinned: dict[str, Any] | None = notes.read(_PIN)
    if pinned is None:
        _refuse_used(notes)
        pinned = {kind: place, "sinkId": sink_id or first}
        notes.write(_PIN, pinned)
    if pinned.get(kind, _NOTHING) != place:
        belongs = pinned.get("topic", pinned.get("lake")) or _BY_COLUMN
        raise JobError(
            f"--checkpoint {notes.folder} belongs to the output {belongs}, not to "
            f"{place or _BY_COLUMN}. Remedy: give every output a checkpoint of its own"
        )
    known: str = pinned["sinkId"]
    if sink_id not in (None, known):
        raise JobError(
            f"--checkpoint {notes.folder} has written as the sink {known}, not as {sink_id}: "
            "what it repeats after a crash would be doubled. Remedy: leave --sink-id away, or "
            "begin anew with another --checkpoint"
        )
    return known


def _refuse_used(notes: "Checkpoint") -> None:
    if notes.is_used():
        raise JobError(
            f"--checkpoint {notes.folder} holds the progress of another job. "
            "Remedy: give this one a folder of its own"
        )


def started(
    writer: "DataStreamWriter",
    *,
    checkpoint: str,
    name: str | None,
    available_now: bool,
    every_s: float,
) -> "StreamingQuery":
    """Start a query that is otherwise ready."""
    writer = writer.option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    if available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(every_s * 1_000)} milliseconds").start()


def _write_in_order(
    together: str,
    order_by: tuple[str, ...],
    columns: tuple[str, ...],
    told: Mapping[str, str],
    frame: "DataFrame",
    batch: int,
) -> None:
    """One batch; runs on the driver.  A batch that the sink has already is read and dropped."""
    from pyspark.sql.functions import expr

    # With a number of partitions, which Spark takes as said: else it might join or split them.
    tasks = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 8)
    ordered = frame.repartition(tasks, expr(together)).sortWithinPartitions(*order_by)
    _write(told, ordered.select(*columns), batch)


def _write(told: Mapping[str, str], frame: "DataFrame", batch: int) -> None:
    """One batch as a write of its own, under its number."""
    writer = frame.write.format(FORMAT).mode("append").options(**told)
    if "sinkId" in told:
        writer = writer.option("batchId", str(batch))
    writer.save()
