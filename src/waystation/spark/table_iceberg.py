"""Iceberg tables, through pyiceberg, with a catalog of their own beside their metadata.

Iceberg needs someone who says which metadata file counts: here ``metadata/waystation.db``, an
SQLite catalog that holds this one table.  ``metadata/version-hint.text`` repeats what it says,
for engines that open a table by its folder; it may be one commit behind.

A batch is one snapshot.  The newest batch of each sink stands in the table's properties, which
change in the same step; pyiceberg's own repetition after a conflict is switched off, since a
batch must be looked for again before it is added again.
"""

import json
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import StaticTable
from pyiceberg.table import Table as IcebergTable
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

from waystation.spark.table_errors import TableError
from waystation.spark.table_files import WrittenFile
from waystation.spark.table_kinds import BatchKey, Piece
from waystation.spark.table_location import Location
from waystation.spark.table_parts import FILE, ROW, read_parquet
from waystation.spark.table_ranges import OFFSETS, CommittedRanges, Ranges, from_json, to_json
from waystation.spark.table_schema import arrow_schema, conform, nullable

__all__ = [
    "FOLDER",
    "HIDDEN",
    "KEEPS_PARTITION_COLUMNS",
    "create",
    "is_here",
    "open_table",
    "read_piece",
]

FOLDER: Final = "data"
HIDDEN: Final = False
KEEPS_PARTITION_COLUMNS: Final = True

SINK: Final = "waystation.sink"
BATCH: Final = "waystation.batch"

_NAME: Final = ("lake", "table")
_CATALOG: Final = "metadata/waystation.db"
_HINT: Final = "metadata/version-hint.text"
_ATTEMPTS: Final = 10


def is_here(location: Location) -> bool:
    """Whether there is metadata that counts."""
    if not location.local or not any(location.folder.glob("metadata/*.metadata.json")):
        return False
    return not (location.folder / _CATALOG).exists() or _catalog(location).table_exists(_NAME)


def open_table(location: Location, version: int | None = None) -> "_Iceberg":
    """The newest snapshot, or the one with this id; 0 is that of a table without any."""
    if not is_here(location):
        raise TableError(
            location.path,
            "there is no Iceberg table here. Format iceberg works in folders only: in an object "
            "store use format delta",
        )
    table = _load(location)
    newest = table.current_snapshot()
    if version is None:
        version = newest.snapshot_id if newest is not None else 0
    if version and table.snapshot_by_id(version) is None:
        raise TableError(location.path, f"option version asks for snapshot {version}: no such one")
    return _Iceberg(location, table, version)


def create(location: Location, schema: StructType, partition_by: tuple[str, ...]) -> None:
    """Make an empty table, unless someone just did."""
    if not location.local:
        raise TableError(
            location.path, "format iceberg works in folders only: use format delta in a store"
        )
    (location.folder / "metadata").mkdir(parents=True, exist_ok=True)
    catalog = _catalog(location)
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(_NAME[0])
    try:
        with (
            catalog.create_table_transaction(
                _NAME,
                arrow_schema(nullable(schema)),
                location=location.path,
                properties=_properties(schema, partition_by),
            ) as transaction,
            transaction.update_spec() as spec,
        ):
            for name in partition_by:
                spec.add_identity(name)
    except (TableAlreadyExistsError, CommitFailedException):
        return
    except TypeError as error:
        raise TableError(
            location.path, f"Iceberg has no place for {schema.simpleString()}: {error}"
        ) from None


def read_piece(location: Location, piece: Piece, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a piece, columns in the schema's order."""
    if piece.extra is None:
        yield from read_parquet(location, piece, schema)
        return
    metadata, task = piece.extra
    table = _at(metadata)
    wanted = table.schema().select(*(name for name in schema.names if name not in (FILE, ROW)))
    row = 0
    for batch in ArrowScan(table.metadata, table.io, wanted, AlwaysTrue()).to_record_batches(
        [task]
    ):
        rows = pa.array(range(row, row + batch.num_rows), pa.int64())
        row += batch.num_rows
        file = pa.repeat(pa.scalar(piece.path), batch.num_rows)
        yield conform(batch.append_column(ROW, rows).append_column(FILE, file), schema)


class _Iceberg:
    """One snapshot of an Iceberg table."""

    def __init__(self, location: Location, table: IcebergTable, version: int) -> None:
        self._location, self._table, self.version = location, table, version
        columns = schema_to_pyarrow(table.schema(), include_field_ids=False)
        self.schema: StructType = nullable(from_arrow_schema(columns))
        self.partition_by = tuple(
            table.schema().find_column_name(field.source_id) or field.name
            for field in table.spec().fields
        )

    def pieces(self) -> list[Piece]:
        if not self.version:
            return []
        tasks = self._table.scan(snapshot_id=self.version).plan_files()
        return sorted(map(self._piece, tasks), key=lambda piece: piece.path)

    def check_appendable(self) -> None:
        if isinstance(self._table, StaticTable):
            raise TableError(
                self._location.path,
                "this Iceberg table belongs to another catalog, without which it can only be "
                "read. Choose another path",
            )

    def is_decided(self, key: BatchKey) -> bool:
        known = self._table.properties.get(_property(key.sink))
        if known is None:
            return False
        query, batch = json.loads(known)
        if query != key.query:
            raise TableError(
                self._location.path,
                f"sink {key.sink} has written here from another checkpoint. Go on with that "
                "checkpoint, or choose another sinkId and start where recorded_ranges ends",
            )
        return bool(batch >= key.batch)

    def append(self, files: Sequence[WrittenFile], key: BatchKey | None, ranges: Ranges) -> bool:
        for _ in range(_ATTEMPTS):
            try:
                self._add(files, key, ranges)
            except CommitFailedException:
                # Someone else committed: perhaps this very batch.
                self._table = _load(self._location)
                if key is not None and self.is_decided(key):
                    return False
            else:
                return True
        raise TableError(
            self._location.path,
            f"others committed before this one {_ATTEMPTS} times in a row. Let fewer sinks write "
            "to it, or let them write less often",
        )

    def files_of(self, key: BatchKey) -> list[str] | None:
        for snapshot in reversed(self._table.snapshots()):
            told = _told(snapshot)
            if (told.get(SINK), told.get(BATCH)) == (key.sink, str(key.batch)):
                return [
                    piece.path
                    for piece in _Iceberg(
                        self._location, self._table, snapshot.snapshot_id
                    ).pieces()
                ]
        return None

    def history(self) -> list[CommittedRanges]:
        return [
            CommittedRanges(
                snapshot.snapshot_id,
                told.get(SINK),
                int(told[BATCH]) if BATCH in told else None,
                snapshot.timestamp_ms,
                from_json(told[OFFSETS]),
            )
            for snapshot in self._table.snapshots()
            if OFFSETS in (told := _told(snapshot))
        ]

    def needed_files(self) -> set[str]:
        every = self._table.inspect.all_files()["file_path"].to_pylist()
        return {self._relative(path) for path in every}

    def _add(self, files: Sequence[WrittenFile], key: BatchKey | None, ranges: Ranges) -> None:
        told = {OFFSETS: json.dumps(to_json(ranges))} if ranges else {}
        with self._table.transaction() as transaction:
            if key is not None:
                told |= {SINK: key.sink, BATCH: str(key.batch)}
                decided = json.dumps([key.query, key.batch])
                transaction.set_properties({_property(key.sink): decided})
            transaction.add_files(
                [posixpath.join(self._location.path, file.path) for file in files],
                snapshot_properties=told,
                check_duplicate_files=False,
            )
        (self._location.folder / _HINT).write_text(
            posixpath.basename(self._table.metadata_location).removesuffix(".metadata.json")
        )

    def _piece(self, task: Any) -> Piece:
        path, size_bytes = self._relative(task.file.file_path), task.file.file_size_in_bytes
        if self._is_plain(task):
            return Piece(path, size_bytes, 0, size_bytes)
        # Cut into one piece whatever its size: pyiceberg reads whole files.
        return Piece(path, size_bytes, 0, 1, extra=(self._table.metadata_location, task))

    def _is_plain(self, task: Any) -> bool:
        """Whether the file's columns are the table's, and all of its rows count."""
        ours = posixpath.basename(task.file.file_path).startswith("ws-")
        return ours and not task.delete_files and len(self._table.metadata.schemas) == 1

    def _relative(self, path: str) -> str:
        return path.removeprefix("file://").removeprefix(f"{self._location.path}/")


def _catalog(location: Location) -> SqlCatalog:
    return SqlCatalog("waystation", uri=f"sqlite:///{location.path}/{_CATALOG}")


def _load(location: Location) -> IcebergTable:
    if (location.folder / _CATALOG).exists():
        return _catalog(location).load_table(_NAME)
    hint = location.folder / _HINT
    if hint.exists():
        return StaticTable.from_metadata(location.path)
    # Nobody says which one counts: the one that was written last.
    newest = max(location.folder.glob("metadata/*.metadata.json"), key=_number)
    return StaticTable.from_metadata(str(newest))


def _number(path: Path) -> tuple[int, float]:
    """``00012-<uuid>.metadata.json`` or ``v12.metadata.json``."""
    digits = path.name.split("-")[0].split(".")[0].removeprefix("v")
    return int(digits) if digits.isdigit() else -1, path.stat().st_mtime


@lru_cache(maxsize=4)
def _at(metadata: str) -> StaticTable:
    return StaticTable.from_metadata(metadata)


def _properties(schema: StructType, partition_by: tuple[str, ...]) -> dict[str, str]:
    """No repetition behind our back, and bounds only of columns whose files have some.

    pyiceberg takes partition values from the bounds, so those must not be cut short.
    """
    mode = "write.metadata.metrics"
    properties = {"commit.retry.num-retries": "0", f"{mode}.default": "none"}
    for field in schema.fields:
        if not isinstance(field.dataType, BinaryType | ArrayType | MapType | StructType):
            kept = "full" if field.name in partition_by else "truncate(16)"
            properties[f"{mode}.column.{field.name}"] = kept
    return properties


def _property(sink: str) -> str:
    return f"{SINK}.{sink}"


def _told(snapshot: Any) -> dict[str, str]:
    summary = snapshot.summary
    return dict(summary.additional_properties) if summary is not None else {}
