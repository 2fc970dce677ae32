"""Rows as an archive writes them, made without a topic."""

import datetime as dt
from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

DAY = dt.date(2026, 3, 1)
ARCHIVED = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("date", DateType()),
    ]
)


def rows(
    offsets: Iterable[int],
    topic: str | None = "orders",
    partition: int = 0,
    dates: Sequence[dt.date | None] | None = None,
    value: bytes = b"value",
) -> pa.RecordBatch:
    """One batch of one partition."""
    offsets = list(offsets)
    noon = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"%d" % offset for offset in offsets], pa.binary()),
            "value": pa.array([value for _ in offsets], pa.binary()),
            "topic": pa.array([topic for _ in offsets], pa.string()),
            "partition": pa.array([partition for _ in offsets], pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array(
                [noon + dt.timedelta(microseconds=offset) for offset in offsets],
                pa.timestamp("us", tz="Europe/Berlin"),
            ),
            "date": pa.array(dates or [DAY for _ in offsets], pa.date32()),
        }
    )
