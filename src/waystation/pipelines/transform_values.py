"""Messages whose values have types, and what becomes of those that do not fit.

A message that does not fit goes to a topic of dead letters, as it came, with headers that say where
it stood and why it is there; without such a topic it ends the job.  Either way none is left out.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from waystation.model.errors import WaystationError
from waystation.pipelines.values import (
    QUARANTINE_REASON,
    QUARANTINE_VALUE,
    ValueSchema,
    decode,
    decode_batches,
    spark_type,
    with_typed_value,
)

__all__ = ["MisfitError", "Typed", "typed", "with_dead_letters"]

_VALUE: Final = "value"
_PREFIX: Final = "dead-letter."


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
    """Messages that fit, and messages that do not, where these are wanted."""

    messages: DataFrame
    misfits: DataFrame | None


def typed(frame: DataFrame, values: ValueSchema, *, set_aside: bool) -> Typed:
    """The frame with typed values; with ``set_aside``, also what does not fit."""
    if values.value_format == "binary":
        return Typed(frame, None)
    if not set_aside:
        fields = [
            StructField(_VALUE, spark_type(values)) if field.name == _VALUE else field
            for field in frame.schema.fields
        ]
        return Typed(frame.mapInArrow(partial(_decoded, values), StructType(fields)), None)
    columns = with_typed_value(frame.schema, values)
    both = frame.mapInArrow(partial(decode_batches, values), columns)
    fitting = both.where(f"{QUARANTINE_REASON} IS NULL")
    return Typed(
        fitting.drop(QUARANTINE_REASON, QUARANTINE_VALUE),
        both.where(f"{QUARANTINE_REASON} IS NOT NULL"),
    )


def _decoded(values: ValueSchema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        at = batch.schema.get_field_index(_VALUE)
        decoded = decode(values, batch.column(at))
        for number, reason in enumerate(decoded.reasons.to_pylist()):
            if reason is not None:
                raise MisfitError(_place(batch, number), reason)
        yield batch.set_column(at, _VALUE, decoded.values)


def _place(batch: pa.RecordBatch, number: int) -> str:
    topic, partition, offset = (
        batch.column(name)[number].as_py() for name in ("topic", "partition", "offset")
    )
    return f"partition {topic}-{partition}, offset {offset}"


def with_dead_letters(rows: DataFrame, to: str | None, misfits: DataFrame, topic: str) -> DataFrame:
    """The rows, each with its topic, and the misfits as they came."""
    from pyspark.sql.functions import lit

    named = rows if to is None else rows.withColumn("topic", lit(to))
    told = {
        "reason": QUARANTINE_REASON,
        "topic": "topic",
        "partition": "cast(partition AS string)",
        "offset": "cast(offset AS string)",
    }
    headers = ", ".join(
        f"named_struct('key', '{_PREFIX}{name}', 'value', cast({value} AS binary))"
        for name, value in told.items()
    )
    had = "coalesce(headers, array())" if "headers" in misfits.columns else "array()"
    letters = misfits.selectExpr(
        "key",
        f"{QUARANTINE_VALUE} AS value",
        f"concat({had}, array({headers})) AS headers",
        "timestamp",
    ).withColumn("topic", lit(topic))
    return _as_alike(named).unionByName(_as_alike(letters), allowMissingColumns=True)


def _as_alike(rows: DataFrame) -> DataFrame:
    """Keys and values as bytes, so that rows of both kinds are of one kind."""
    for name in ("key", "value"):
        if name in rows.columns:
            rows = rows.withColumn(name, rows[name].cast("binary"))
    return rows
