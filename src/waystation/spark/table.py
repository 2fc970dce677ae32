"""The data source ``waystation.table``: tables of a lake, without jars.

``spark.read.format("waystation.table").load(path)`` reads Delta, Iceberg and the Parquet
tables that it writes; ``df.writeStream.format("waystation.table")`` writes each row exactly
once.  A frame keeps the snapshot that it was loaded from.  The options are explained in
``docs/reference/tables.md``.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from waystation.spark.errors import BadOptionError, speaking_plainly
from waystation.spark.table_options import read_settings, write_settings
from waystation.spark.table_reading import TableReader, open_snapshot, snapshot_schema
from waystation.spark.table_writing import BatchTableWriter, StreamTableWriter

__all__ = ["TableSource"]


class TableSource(DataSource):
    """What Spark asks for; each answer comes from a file of its own."""

    # The version that ``schema`` saw; Spark pickles the source after asking for it.
    _pinned: int | None = None

    @classmethod
    def name(cls) -> str:
        """As users write it."""
        return "waystation.table"

    @speaking_plainly()
    def schema(self) -> StructType:
        """The table's columns; from here on, this source shows what was committed by now."""
        settings = read_settings(self.options)
        _, table = open_snapshot(settings)
        self._pinned = table.version
        return snapshot_schema(settings, table)

    @speaking_plainly()
    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        settings = read_settings(self.options)
        if settings.version is None:
            settings = settings._replace(version=self._pinned)
        return TableReader(settings, schema)

    @speaking_plainly()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``df.write``."""
        _refuse_overwriting(overwrite, 'mode("overwrite")', 'mode("append")')
        return BatchTableWriter(write_settings(self.options), schema)

    @speaking_plainly()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """For ``df.writeStream``."""
        _refuse_overwriting(overwrite, 'outputMode("complete")', 'outputMode("append")')
        return StreamTableWriter(write_settings(self.options), schema)


def _refuse_overwriting(overwrite: bool, asked: str, instead: str) -> None:
    if overwrite:
        raise BadOptionError(
            f"waystation.table only ever adds rows, and {asked} replaces them: use {instead}, "
            "or a path of its own for each result"
        )
