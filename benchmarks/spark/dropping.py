"""The most that Spark can give a Python sink: one that takes every Arrow batch and drops it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType


class DroppingSink(DataSource):
    """``format("dropping")``."""

    @classmethod
    def name(cls) -> str:
        """What it is called."""
        return "dropping"

    def writer(self, schema: StructType, overwrite: bool) -> DroppingWriter:
        """Drops whatever comes."""
        return DroppingWriter()


class DroppingWriter(DataSourceArrowWriter):
    """Nothing is kept and nothing encoded."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Take every batch."""
        for _ in iterator:
            pass
        return WriterCommitMessage()
