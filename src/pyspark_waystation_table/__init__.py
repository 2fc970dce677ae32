"""Spark finds the data source ``waystation.table`` here: it looks for modules of this name.

Every Python process of a Spark job imports this, so it imports little: the real source is made
when a job asks for one.
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Stands for ``waystation.spark.table.TableSource`` until something is asked of it."""

    _source: Any = None

    @classmethod
    def name(cls) -> str:
        """As users write it."""
        return "waystation.table"

    def schema(self) -> "StructType":
        """The table's columns."""
        schema: StructType = self._table().schema()
        return schema

    def reader(self, schema: "StructType") -> "DataSourceReader":
        """For ``spark.read``."""
        reader: DataSourceReader = self._table().reader(schema)
        return reader

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        """For ``df.write``."""
        writer: DataSourceWriter = self._table().writer(schema, overwrite)
        return writer

    def streamWriter(  # noqa: N802
        self, schema: "StructType", overwrite: bool
    ) -> "DataSourceStreamWriter":
        """For ``df.writeStream``."""
        writer: DataSourceStreamWriter = self._table().streamWriter(schema, overwrite)
        return writer

    def _table(self) -> Any:
        # Kept, and pickled with this: it remembers the snapshot that it showed.
        if self._source is None:
            from waystation.spark.table import TableSource

            self._source = TableSource(self.options)
        return self._source
