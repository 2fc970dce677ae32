"""The most a Python data source can give Spark: one Arrow batch, handed over again and again.

Nothing is fetched and nothing decoded, so what Spark takes of it is what its API allows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from waystation.client.raw import Fetched
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder
from waystation.records.header import batches
from waystation.spark.columns import ARROW, COLUMNS
from waystation.spark.decode import TARGET_BYTES, SpanDecoder
from waystation.spark.spans import Span

_NOW_MS = 1_700_000_000_000


class CeilingSource(DataSource):
    """``format("ceiling")`` with the options ``rows``, ``valuebytes`` and ``tasks``."""

    @classmethod
    def name(cls) -> str:
        """What it is called."""
        return "ceiling"

    def schema(self) -> StructType:
        """The columns of a topic."""
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Hands the same batch over."""
        options = {name: int(self.options[name]) for name in ("rows", "valuebytes", "tasks")}
        return CeilingReader(options["rows"], options["valuebytes"], options["tasks"])


class CeilingReader(DataSourceReader):
    """As many tasks as a topic has partitions, each with its share of the rows."""

    def __init__(self, rows: int, value_bytes: int, tasks: int) -> None:
        self._rows, self._value_bytes, self._tasks = rows, value_bytes, tasks

    def partitions(self) -> list[InputPartition]:
        """Which task it is does not matter."""
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One batch until there were enough rows."""
        batch, left = one_batch(self._value_bytes), self._rows // self._tasks
        while left > 0:
            yield batch if left >= batch.num_rows else batch.slice(0, left)
            left -= batch.num_rows


def one_batch(value_bytes: int) -> pa.RecordBatch:
    """A batch just as the topic's data source makes it of records of this size."""
    builder = BatchBuilder(limit_bytes=2 * TARGET_BYTES)
    while builder.append(None, os.urandom(value_bytes), timestamp=Millis(_NOW_MS)):
        pass
    raw = memoryview(builder.build())
    fetched = Fetched(Offset(0), raw, list(batches(raw)), (), Offset(0), Offset(0))
    columns = tuple(name for name in ARROW.names if name in COLUMNS.names)
    decoder = SpanDecoder(columns, Span("read-0", 0, 0, 1 << 40))
    return next(decoder.decode(fetched))
