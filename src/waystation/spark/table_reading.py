"""How rows of a table come back: one snapshot, its files shared out among tasks."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from waystation.spark.errors import speaking_plainly
from waystation.spark.table_errors import TableError
from waystation.spark.table_kinds import Piece, Table, existing_kind, kind_called
from waystation.spark.table_location import Location
from waystation.spark.table_options import ReadSettings
from waystation.spark.table_parts import FILE, ROW, cut, shares
from waystation.spark.table_schema import arrow_schema, pruned

__all__ = ["TableReader", "open_snapshot", "snapshot_schema"]

_POSITION: Final = [StructField(FILE, StringType()), StructField(ROW, LongType())]


class _Share(InputPartition):
    """What one task reads."""

    def __init__(self, location: Location, kind: str, pieces: list[Piece]) -> None:
        self.location, self.kind, self.pieces = location, kind, pieces


def open_snapshot(settings: ReadSettings) -> tuple[str, Table]:
    """The kind of the table, and the snapshot that was asked for."""
    kind = settings.kind or existing_kind(settings.location)
    return kind, kind_called(kind).open_table(settings.location, settings.version)


def snapshot_schema(settings: ReadSettings, table: Table) -> StructType:
    """The table's columns, and where rows lie if that was asked for."""
    extra = _POSITION if settings.include_position else []
    return StructType([*table.schema.fields, *extra])


def _chosen(settings: ReadSettings, table: Table) -> list[Piece]:
    """The snapshot's files that were asked for; one that it has not is an error."""
    pieces = table.pieces()
    if settings.files is None:
        return pieces
    if strangers := settings.files.difference(piece.path for piece in pieces):
        raise TableError(
            settings.location.path,
            f"option files names {min(strangers)}, which version {table.version} does not have. "
            "Take names from the column _file of the same version",
        )
    return [piece for piece in pieces if piece.path in settings.files]


class TableReader(DataSourceReader):
    """One snapshot; ``schema`` may ask for fewer columns than there are."""

    def __init__(self, settings: ReadSettings, schema: StructType) -> None:
        self._settings = settings
        with speaking_plainly():
            kind, table = open_snapshot(settings)
            pruned(settings.location.path, schema, snapshot_schema(settings, table))
            pieces = [part for piece in _chosen(settings, table) for part in cut(piece)]
        self._schema = arrow_schema(schema)
        self._shares = [_Share(settings.location, kind, share) for share in shares(pieces)]

    def partitions(self) -> list[InputPartition]:
        """Nothing but an empty share for a table without files."""
        return [*self._shares] or [_Share(self._settings.location, "delta", [])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        assert isinstance(partition, _Share), f"Spark asks for {partition!r}"
        kind = kind_called(partition.kind)
        for piece in partition.pieces:
            with speaking_plainly():
                yield from kind.read_piece(partition.location, piece, self._schema)

    def __getstate__(self) -> dict[str, object]:
        # Every task gets a copy of the reader, and its own share beside it.
        return {**self.__dict__, "_shares": []}
