"""Messages whose values have types, and what becomes of those that do not fit.

A message that does not fit goes to a topic of dead letters, as it came, with headers that say where
it stood and why it is there; without such a topic it ends the job.  Either way none is left out.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from waystation.model.errors import WaystationError
from waystation.pipelines.values import (
    QUARANTINE_REASON,
    QUARANTINE_VALUE,
    ValueSchema,
    decode_batches,
    with_typed_value,
)

__all__ = ["MisfitError", "Typed", "typed", "with_dead_letters"]


class MisfitError(WaystationError):
    """A value that is not what was said, and nowhere to put it."""

    def __init__(self, place: str, why: str) -> None:
        self.place, self.why = place, why
        super().__init__(
            f"{place} does not fit: {why}. Remedy: --dead-letters TOPIC sets such messages aside"
        )

    def __reduce__(self) -> tuple[type["MisfitError"], tuple[str, str]]:
        return type(self), (self.place, self.why)


class Typed(NamedTuple):
    """Messages that fit, and messages that do not; the latter none if they end the job."""

    messages: DataFrame
    misfits: DataFrame


def typed(frame: DataFrame, values: ValueSchema, *, set_aside: bool) -> Typed:
    """The frame with typed values; what does not fit beside it, or with an error."""
    columns = with_typed_value(frame.schema, values)
    if set_aside:
        both = frame.mapInArrow(partial(decode_batches, values), columns)
        fitting = both.where(f"{QUARANTINE_REASON} IS NULL")
        misfits = both.where(f"{QUARANTINE_REASON} IS NOT NULL")
    else:
        fitting = frame.mapInArrow(partial(_all_fitting, values), columns)
        nothing = {QUARANTINE_REASON: lit(None), QUARANTINE_VALUE: lit(None)}
        misfits = frame.where("false").withColumns(nothing)
    return Typed(fitting.drop(QUARANTINE_REASON, QUARANTINE_VALUE), misfits)


def _all_fitting(
    values: ValueSchema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in decode_batches(values, batches):
        reasons = batch.column(QUARANTINE_REASON)
        if reasons.null_count < len(reasons):
            at = reasons.is_valid().index(True).as_py()
            raise MisfitError(_place(batch, at), reasons[at].as_py())
        yield batch


def _place(batch: pa.RecordBatch, number: int) -> str:
    topic, partition, offset = (
        batch.column(name)[number].as_py() for name in ("topic", "partition", "offset")
    )
    return f"partition {topic}-{partition}, offset {offset}"


def with_dead_letters(
    rows: DataFrame, to: str | None, misfits: DataFrame, topic: str | None
) -> DataFrame:
    """The rows, each with its topic, and the misfits as they came.

    Also where there is no ``topic`` for misfits, and none come: Spark remembers how often a job
    reads its topics, and whoever was stopped by a misfit should be able to name a topic then.
    """
    named = rows if to is None else rows.withColumn("topic", lit(to))
    had = "coalesce(headers, array())" if "headers" in misfits.columns else "array()"
    headers = f"concat({had}, array({_HEADERS})) AS headers"
    letters = misfits.selectExpr(*_LETTER, headers).withColumn("topic", lit(topic))
    return _as_bytes(named).unionByName(_as_bytes(letters), allowMissingColumns=True)


_TOLD: Final = {
    "reason": QUARANTINE_REASON,
    "topic": "topic",
    "partition": "cast(partition AS string)",
    "offset": "cast(offset AS string)",
}
_HEADERS: Final = ", ".join(
    f"named_struct('key', 'dead-letter.{name}', 'value', cast({value} AS binary))"
    for name, value in _TOLD.items()
)
_LETTER: Final = ("key", f"{QUARANTINE_VALUE} AS value", "timestamp")


def _as_bytes(rows: DataFrame) -> DataFrame:
    """Keys and values as bytes, so that rows of both kinds are of one kind."""
    for name in ("key", "value"):
        if name in rows.columns:
            rows = rows.withColumn(name, rows[name].cast("binary"))
    return rows
