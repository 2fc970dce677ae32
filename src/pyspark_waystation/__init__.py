"""Spark finds the data source ``waystation`` here: it looks for modules of this name.

Every Python process of a Spark job imports this, so it imports little: what a source does is
imported when Spark asks for it.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from waystation.spark.sink import BatchTopicWriter, StreamTopicWriter
    from waystation.spark.source import TopicReader, TopicSource, TopicStreamReader

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """``format("waystation")``: topics as tables; see ``waystation.spark.source``."""

    @classmethod
    def name(cls) -> str:
        """What users call it."""
        return "waystation"

    def schema(self) -> "StructType":
        """The columns of a topic."""
        return self._source.schema()

    def reader(self, schema: "StructType") -> "TopicReader":
        """Reads what is there."""
        return self._source.reader(schema)

    def streamReader(self, schema: "StructType") -> "TopicStreamReader":  # noqa: N802 - Spark's name
        """Reads what is there and what comes."""
        return self._source.streamReader(schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "BatchTopicWriter":
        """Writes a frame into topics."""
        return self._source.writer(schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "StreamTopicWriter":  # noqa: N802
        """Writes batch after batch into topics."""
        return self._source.streamWriter(schema, overwrite)

    @property
    def _source(self) -> "TopicSource":
        from waystation.spark.source import TopicSource

        return TopicSource(self.options)
