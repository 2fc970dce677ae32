"""Rows of a topic or a lake as rows of the sink: as they were, and saying where they are from.

Key, value, timestamp and headers stay.  Headers are added that name the place of the original,
so that consumers can tell a copy and find what it is a copy of:

    <kind>.topic  <kind>.partition  <kind>.offset  <kind>.timestamp  <kind>.run

all as text, the timestamp in ms since 1970.  A copy of a copy has them once more, the last ones
being those of the last copy.

Nothing here moves a row to another task: the order of a partition stays what it is.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = ["TOPIC_NAME", "copies"]

TOPIC_NAME = "{topic}"
"""What stands for the original's topic in the name of the copy's."""

_HEADERS = "array<struct<key:string,value:binary>>"


def copies(
    frame: "DataFrame", *, kind: str, run: str, to: str, keep_partitions: bool = False
) -> "DataFrame":
    """``frame`` with the columns of the sink; ``to`` may name topics by ``{topic}``."""
    columns = [
        f.col("key"),
        as_payload(frame.schema["value"].dataType).alias("value"),
        f.col("timestamp"),
        _headers(frame, kind, run).alias("headers"),
    ]
    if keep_partitions:
        columns.append(f.col("partition"))
    if TOPIC_NAME in to:
        named = f.replace(f.lit(to), f.lit(TOPIC_NAME), f.col("topic"))
        columns.append(named.alias("topic"))
    return frame.select(*columns)


def as_payload(kind: "DataType") -> "Column":
    """The value as bytes or text; one that an archive has given types becomes JSON again."""
    value = f.col("value")
    if isinstance(kind, BinaryType | StringType):
        return value
    if isinstance(kind, StructType | MapType | ArrayType):
        return f.to_json(value)
    return value.cast("string")


def _headers(frame: "DataFrame", kind: str, run: str) -> "Column":
    none = f.array().cast(_HEADERS)
    before = f.coalesce(f.col("headers"), none) if "headers" in frame.columns else none
    origin = {
        "topic": f.col("topic"),
        "partition": f.col("partition"),
        "offset": f.col("offset"),
        "timestamp": f.unix_millis("timestamp"),
        "run": f.lit(run),
    }
    added = f.array(
        *(
            f.struct(
                f.lit(f"{kind}.{name}").alias("key"),
                value.cast("string").cast("binary").alias("value"),
            )
            for name, value in origin.items()
        )
    )
    return f.concat(before, added.cast(_HEADERS))
