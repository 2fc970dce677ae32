"""Commits of every kind of table: all or nothing, once, and nothing left behind."""

import datetime as dt
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from tests.spark.rows import ARCHIVED, DAY, rows
from tests.spark.tables import (
    FIRST,
    SECOND,
    data_files,
    offsets,
    opened,
    read,
    write,
    write_and_commit,
)
from waystation.spark import table_writing
from waystation.spark.errors import BadOptionError
from waystation.spark.table_cleaning import vacuum
from waystation.spark.table_errors import MissingPackageError, TableError
from waystation.spark.table_files import WrittenFile
from waystation.spark.table_history import recorded_ranges
from waystation.spark.table_kinds import BatchKey, kind_called
from waystation.spark.table_options import KINDS, write_settings
from waystation.spark.table_parts import cut, shares
from waystation.spark.table_ranges import OffsetRange, merge
from waystation.spark.table_schema import arrow_schema
from waystation.spark.table_writing import Target


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return opened(tmp_path / "lake", request.param)


def test_rows_come_back_as_they_went(target: Target) -> None:
    dates = [DAY, None, DAY + dt.timedelta(days=1)]
    write_and_commit(target, FIRST, rows([0, 1, 2], dates=dates))

    found = sorted(read(target.location.folder), key=lambda row: row["offset"])

    assert [row["date"] for row in found] == dates
    assert found[2] == {
        "key": b"2",
        "value": b"value",
        "topic": "orders",
        "partition": 0,
        "offset": 2,
        "timestamp": dt.datetime(2026, 3, 1, 12, 0, 0, 2, tzinfo=dt.UTC),
        "date": DAY + dt.timedelta(days=1),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_comes_back(tmp_path: Path, kind: str) -> None:
    values: dict[str, tuple[DataType, list[Any]]] = {
        "flag": (BooleanType(), [True, None]),
        "whole": (IntegerType(), [-1, None]),
        "real": (DoubleType(), [0.5, None]),
        "exact": (DecimalType(12, 2), [Decimal("-3.25"), None]),
        "local": (TimestampNTZType(), [dt.datetime(2026, 3, 1, 1, 2, 3, 4), None]),
        "text": (StringType(), ["ä\x00", ""]),
        "many": (ArrayType(StructType([StructField("n", LongType())])), [[{"n": 1}, None], None]),
        "by_name": (MapType(StringType(), LongType()), [[("a", 1), ("b", None)], None]),
        "deep": (StructType([StructField("day", DateType())]), [{"day": DAY}, None]),
    }
    schema = StructType([StructField(name, kind) for name, (kind, _) in values.items()])
    target = opened(tmp_path / "lake", kind, schema, by="")
    batch = pa.RecordBatch.from_pydict(
        {name: found for name, (_, found) in values.items()}, schema=arrow_schema(schema)
    )

    write_and_commit(target, FIRST, batch)

    assert read(tmp_path / "lake") == batch.to_pylist()


def test_a_new_table_is_empty_and_readable(target: Target) -> None:
    assert read(target.location.folder) == []


def test_a_batch_is_committed_once_however_often_it_is_tried(target: Target) -> None:
    for key in (FIRST, FIRST, SECOND, FIRST, SECOND):
        write_and_commit(target, key, rows(range(key.batch * 10, key.batch * 10 + 10)))

    assert offsets(target) == [*range(20)]
    assert len(data_files(target)) == 2


def test_files_without_a_commit_are_not_shown(target: Target) -> None:
    write_and_commit(target, FIRST, rows([0]))

    write(target, SECOND, rows([1]))

    assert offsets(target) == [0]


def test_a_commit_removes_what_dead_attempts_left(target: Target) -> None:
    write(target, FIRST, rows(range(5)))
    write(target, FIRST, rows(range(3)))
    other = write(target, FIRST._replace(sink="another"), rows([7]))

    write_and_commit(target, FIRST, rows(range(5)))

    kept = {target.location.folder / file.path for file in other.finished}
    assert offsets(target) == [*range(5)]
    assert len(data_files(target)) == 2
    assert kept < set(data_files(target))


def test_attempts_after_the_commit_leave_nothing_either(target: Target) -> None:
    write_and_commit(target, FIRST, rows(range(5)))
    write(target, FIRST, rows(range(5)))

    write_and_commit(target, FIRST, rows(range(5)))

    assert offsets(target) == [*range(5)]
    assert len(data_files(target)) == 1


def test_of_two_drivers_one_commits_a_batch(target: Target) -> None:
    """A driver that was believed dead tries the same batch from an old snapshot."""
    kind = kind_called(target.kind)
    files = [write(target, FIRST, rows(range(5))) for _ in range(2)]
    snapshots = [kind.open_table(target.location) for _ in range(2)]

    took = [
        snapshot.append(of.finished, FIRST, of.ranges)
        for snapshot, of in zip(snapshots, files, strict=True)
    ]

    assert took == [True, False]
    assert offsets(target) == [*range(5)]


def test_different_sinks_do_not_hinder_each_other(target: Target) -> None:
    kind = kind_called(target.kind)
    keys = [FIRST, FIRST._replace(sink="other", query="query-2")]
    files = [write(target, key, rows([at])) for at, key in enumerate(keys)]
    snapshots = [kind.open_table(target.location) for _ in keys]

    for key, of, snapshot in zip(keys, files, snapshots, strict=True):
        assert snapshot.append(of.finished, key, of.ranges)

    assert offsets(target) == [0, 1]


def test_drivers_at_the_same_time_lose_and_double_nothing(target: Target) -> None:
    trouble: list[BaseException] = []

    def attempt(key: BatchKey) -> None:
        batch = rows([key.batch], partition=int(key.sink))
        try:
            write_and_commit(target, key, batch)
        except FileNotFoundError:
            # The other driver committed while this task wrote, and cleaned up; Spark tries again.
            write_and_commit(target, key, batch)

    def drive(sink: str) -> None:
        try:
            for batch in range(4):
                attempt(BatchKey(sink, "q", batch))
        except BaseException as error:
            trouble.append(error)

    threads = [threading.Thread(target=drive, args=[name]) for name in ("1", "1", "2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert trouble == []
    assert offsets(target) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_sink_with_another_checkpoint_is_refused(target: Target) -> None:
    """Its batch numbers mean other rows: taking them for done would lose rows silently."""
    write_and_commit(target, FIRST, rows([0]))

    with pytest.raises(TableError, match=r"sink archive .* another checkpoint"):
        write_and_commit(target, FIRST._replace(query="query-2"), rows([1]))

    assert offsets(target) == [0]
    assert len(data_files(target)) == 1


def test_single_appends_are_all_kept(target: Target) -> None:
    write_and_commit(target, None, rows([0]))
    write_and_commit(target, None, rows([0]))

    assert offsets(target) == [0, 0]


def test_commits_record_which_offsets_they_brought(target: Target) -> None:
    write_and_commit(target, FIRST, rows([0, 1]), rows([5, 9], partition=1))
    write_and_commit(target, SECOND, rows([2], topic="payments"))

    recorded = recorded_ranges(target.location.path)

    assert [(commit.sink, commit.batch) for commit in recorded] == [("archive", 0), ("archive", 1)]
    assert recorded[0].ranges == {
        ("orders", 0): OffsetRange(0, 1, 2),
        ("orders", 1): OffsetRange(5, 9, 2),
    }
    assert merge(commit.ranges for commit in recorded)["payments", 0] == OffsetRange(2, 2, 1)
    assert recorded[1].committed_at_ms >= recorded[0].committed_at_ms > 0


def test_older_versions_can_be_read(target: Target) -> None:
    write_and_commit(target, FIRST, rows([0]))
    version = recorded_ranges(target.location.path)[0].version
    write_and_commit(target, SECOND, rows([1]))

    then = read(target.location.folder, ["offset"], version=str(version))

    assert then == [{"offset": 0}]
    with pytest.raises(TableError, match="option version"):
        read(target.location.folder, version="99")


def test_vacuum_removes_old_files_that_nobody_names(target: Target) -> None:
    write_and_commit(target, FIRST, rows([0]))
    orphan = write(target, SECOND, rows([1])).finished[0].path

    assert vacuum(target.location.path) == []
    assert vacuum(target.location.path, older_than_hours=0) == [orphan]
    assert offsets(target) == [0]
    with pytest.raises(BadOptionError, match="older_than_hours"):
        vacuum(target.location.path, older_than_hours=-1)


def test_positions_tell_where_rows_lie(target: Target) -> None:
    write_and_commit(target, FIRST, rows([4, 5, 6]))

    found = read(target.location.folder, ["offset", "_file", "_row"], includePosition="true")

    assert [(row["offset"], row["_row"]) for row in found] == [(4, 0), (5, 1), (6, 2)]
    assert {row["_file"] for row in found} == {
        str(path.relative_to(target.location.folder)) for path in data_files(target)
    }


def test_a_frame_that_does_not_fit_is_refused_before_anything_is_written(target: Target) -> None:
    path = target.location.folder
    more = StructType([*ARCHIVED.fields, StructField("extra", StringType())])
    other = StructType(
        [StructField(f.name, IntegerType() if f.name == "key" else f.dataType) for f in ARCHIVED]
    )

    with pytest.raises(TableError, match=r"no column extra \(string\)"):
        opened(path, target.kind, more)
    with pytest.raises(TableError, match="column key is binary there and int"):
        opened(path, target.kind, other)
    with pytest.raises(TableError, match=r"partitioned by date, .* asks for topic"):
        opened(path, target.kind, by="topic")
    with pytest.raises(BadOptionError, match="partitionBy names nobody"):
        opened(path, target.kind, by="nobody")
    assert data_files(target) == []


def test_a_table_of_another_kind_is_refused(target: Target) -> None:
    other = "parquet" if target.kind == "delta" else "delta"

    with pytest.raises(TableError, match=f"it is a {target.kind} table"):
        opened(target.location.folder, other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()

    with pytest.raises(TableError, match=f"{tmp_path}/file/lake: cannot be"):
        opened(tmp_path / "file" / "lake", kind)
    with pytest.raises(TableError, match="something here that is no table"):
        opened(tmp_path / "full", kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_whose_making_was_interrupted_is_made(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lake"
    opened(path, kind)
    (path / "_checkpoint").mkdir()
    (path / "_checkpoint" / "metadata").touch()
    # The last thing that each kind does is to name what it made.
    for last in ("_delta_log/*.json", "_waystation/table.json", "metadata/waystation.db"):
        for file in path.glob(last):
            file.unlink()
    if kind == "iceberg":
        SqlCatalog("waystation", uri=f"sqlite:///{path}/metadata/waystation.db")

    target = opened(path, kind)

    write_and_commit(target, FIRST, rows([0]))
    assert offsets(target) == [0]


# Where a driver may die, as what it does last.  Delta and Iceberg decide inside their libraries;
# a Parquet table has a point between the decision and the names of its files.
_DYING = """
import os, sys
from pathlib import Path
from tests.spark.rows import rows
from tests.spark.tables import FIRST, SECOND, opened, write, write_and_commit
from waystation.spark import table_cleaning, table_parquet, table_writing

path, kind, point = sys.argv[1:]
target = opened(Path(path), kind)
write_and_commit(target, FIRST, rows(range(10)))
die = lambda *_: os._exit(9)
if point == "before commit":
    write(target, SECOND, rows(range(10, 20)))
    die()
elif point == "after the entry":
    table_parquet._Parquet._show = lambda table: die() if table.version == 2 else None
elif point == "after commit":
    table_writing.remove_leftovers = die
write_and_commit(target, SECOND, rows(range(10, 20)))
"""


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        ("parquet", "before commit"),
        ("parquet", "after the entry"),
        ("parquet", "after commit"),
        ("iceberg", "before commit"),
        ("iceberg", "after commit"),
    ],
)
def test_a_driver_that_dies_is_followed_by_one_that_finishes(
    tmp_path: Path, kind: str, point: str
) -> None:
    path = tmp_path / "lake"
    died = subprocess.run(
        [sys.executable, "-c", _DYING, path, kind, point], cwd=Path.cwd(), check=False, timeout=60
    )
    assert died.returncode == 9
    shown = offsets(opened(path, kind))
    assert shown == ([*range(10)] if point == "before commit" else [*range(20)])

    again = opened(path, kind)
    write_and_commit(again, SECOND, rows(range(10, 20)))
    write_and_commit(again, SECOND._replace(batch=2), rows(range(20, 30)))

    assert offsets(again) == [*range(30)]
    assert len(data_files(again)) == 3
    assert not [path for path in data_files(again) if path.name.startswith("_")]


def test_a_vacuumed_file_is_named(tmp_path: Path) -> None:
    target = opened(tmp_path / "lake")
    write_and_commit(target, FIRST, rows([0]))
    data_files(target)[0].unlink()

    with pytest.raises(TableError, match="is gone"):
        read(target.location.folder)


def test_no_table_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=f"{tmp_path}/none: there is no table"):
        read(tmp_path / "none")
    with pytest.raises(TableError, match="no Delta table"):
        read(tmp_path, format="delta")


def test_large_files_are_cut_by_row_groups_and_small_ones_travel_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waystation.spark.table_files.ROW_GROUP_BYTES", 1)
    target = opened(tmp_path / "lake")
    write_and_commit(target, FIRST, *(rows(range(at, at + 10)) for at in range(0, 100, 10)))
    whole = kind_called("delta").open_table(target.location).pieces()[0]
    schema = pa.schema([("offset", pa.int64()), ("_row", pa.int64())])

    parts = [*cut(whole, task_bytes=whole.size_bytes // 7)]
    found = [
        row
        for part in parts
        for batch in kind_called("delta").read_piece(target.location, part, schema)
        for row in batch.to_pylist()
    ]

    assert found == [{"offset": at, "_row": at} for at in range(100)]
    assert [len(share) for share in shares([whole] * 9)] == [4, 4, 1]


def test_a_missing_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "waystation.spark.table_iceberg", None)
    monkeypatch.delitem(sys.modules, "waystation.spark.table_iceberg")
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.sql", None)

    with pytest.raises(MissingPackageError, match=r"waystation\[pipelines\]"):
        opened(tmp_path / "lake", "iceberg")


def test_an_abort_after_a_commit_that_may_have_been_made_removes_nothing(tmp_path: Path) -> None:
    """Spark aborts when the process that commits dies, also if it dies having committed."""
    settings = write_settings({"path": str(tmp_path / "lake")})
    writer = table_writing.BatchTableWriter(settings, ARCHIVED)
    first, second = (writer.write(iter([rows([at])])) for at in range(2))

    writer.commit([first])
    writer.abort([first])
    writer.abort([second, None])

    assert [row["offset"] for row in read(tmp_path / "lake")] == [0]
    assert len([*tmp_path.rglob("*.parquet")]) == 1


def test_the_quarantine_is_committed_before_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    schema = StructType(
        [
            *ARCHIVED.fields,
            StructField("quarantine_reason", StringType()),
            StructField("quarantine_value", ARCHIVED["value"].dataType),
        ]
    )
    settings = write_settings({"path": str(tmp_path / "a"), "quarantinePath": str(tmp_path / "b")})
    writer = table_writing.BatchTableWriter(settings, schema)
    batch = rows([0, 1])
    batch = batch.append_column("quarantine_reason", pa.array([None, "not JSON"]))
    batch = batch.append_column("quarantine_value", pa.array([None, b"{"]))
    through = table_writing.commit

    def noting(target: Target, files: list[WrittenFile], *rest: Any) -> None:
        order.append(target.location.folder.name)
        through(target, files, *rest)

    monkeypatch.setattr(table_writing, "commit", noting)
    writer.commit([writer.write(iter([batch]))])

    assert order == ["b", "a"]
    assert [row["offset"] for row in read(tmp_path / "a")] == [0]
    refused = read(tmp_path / "b")[0]
    assert (refused["offset"], refused["reason"], refused["value"]) == (1, "not JSON", b"{")
