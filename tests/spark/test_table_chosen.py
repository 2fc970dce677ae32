"""Some files of a table, for jobs that know what lies where."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.spark.rows import ARCHIVED, rows
from waystation.spark.table_errors import TableError
from waystation.spark.table_files import FileSet
from waystation.spark.table_kinds import BatchKey
from waystation.spark.table_options import KINDS, read_settings, write_settings
from waystation.spark.table_reading import TableReader, open_snapshot, snapshot_schema
from waystation.spark.table_writing import commit, targets


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A table of two commits with ten offsets each."""
    told = {"path": str(tmp_path / "lake"), "format": request.param, "partitionBy": "date"}
    target = targets(write_settings(told), ARCHIVED)[0]
    for number in range(2):
        key = BatchKey("archive", "query", number)
        files = FileSet(target.location, target.layout, f"{key.stem}-00000")
        files.add(rows(range(number * 10, number * 10 + 10)))
        files.finish()
        commit(target, files.finished, key, files.ranges)
    return tmp_path / "lake"


def read(lake: Path, **options: str) -> list[dict[str, Any]]:
    """What tasks of a reader do."""
    settings = read_settings({"path": str(lake), "includePosition": "true", **options})
    reader = TableReader(settings, snapshot_schema(settings, open_snapshot(settings)[1]))
    shares = reader.partitions()
    return [row for share in shares for batch in reader.read(share) for row in batch.to_pylist()]


def test_only_the_files_that_are_named_are_read(lake: Path) -> None:
    file_of = {row["offset"]: row["_file"] for row in read(lake)}

    assert [row["offset"] for row in read(lake, files=json.dumps([file_of[15]]))] == [
        *range(10, 20)
    ]
    assert len(read(lake, files=json.dumps([file_of[0], file_of[10]]))) == 20
    assert read(lake, files="[]") == []


def test_a_file_that_the_snapshot_does_not_have_is_refused_by_name(lake: Path) -> None:
    with pytest.raises(TableError, match="files names elsewhere"):
        read(lake, files='["elsewhere.parquet"]')
