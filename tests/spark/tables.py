"""Tables as tests make, write and read them: as a driver and its tasks do, without Spark."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    StructType,
)

from tests.spark.rows import ARCHIVED
from waystation.spark.table_files import FileSet
from waystation.spark.table_kinds import BatchKey
from waystation.spark.table_options import read_settings, write_settings
from waystation.spark.table_reading import TableReader, open_snapshot, snapshot_schema
from waystation.spark.table_writing import Target, commit, targets

FIRST = BatchKey("archive", "query-1", 0)

SECOND = FIRST._replace(batch=1)


def opened(
    path: Path, kind: str = "delta", schema: StructType = ARCHIVED, by: str = "date"
) -> Target:
    settings = write_settings({"path": str(path), "format": kind, "partitionBy": by})
    return targets(settings, schema)[0]


def write(target: Target, key: BatchKey | None, *batches: pa.RecordBatch) -> FileSet:
    """What a task does."""
    files = FileSet(target.location, target.layout, f"{key.stem if key else 'ws-append'}-00000")
    for batch in batches:
        files.add(batch)
    files.finish()
    return files


def write_and_commit(target: Target, key: BatchKey | None, *batches: pa.RecordBatch) -> None:
    files = write(target, key, *batches)
    commit(target, files.finished, key, files.ranges)


def read(path: Path, columns: Iterable[str] | None = None, **options: str) -> list[dict[str, Any]]:
    """What tasks of a reader do."""
    settings = read_settings({"path": str(path), **options})
    _, table = open_snapshot(settings)
    schema = snapshot_schema(settings, table)
    if columns is not None:
        schema = StructType([schema[name] for name in columns])
    reader = TableReader(settings, schema)
    return [
        row
        for share in reader.partitions()
        for batch in reader.read(share)
        for row in batch.to_pylist()
    ]


def offsets(target: Target) -> list[int]:
    return sorted(row["offset"] for row in read(target.location.folder, ["offset"]))


def data_files(target: Target) -> list[Path]:
    return [*target.location.folder.rglob("*ws-*.parquet")]
