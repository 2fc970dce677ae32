"""What a task leaves behind: every row once, offsets in order, in bounded memory."""

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType

from tests.spark.rows import ARCHIVED, DAY, rows
from waystation.spark import table_files
from waystation.spark.table_files import FileSet, Layout, WrittenFile
from waystation.spark.table_location import Location
from waystation.spark.table_ranges import OffsetRange


def layout(
    *partition_by: str, file_bytes: int = 128 << 20, schema: StructType = ARCHIVED
) -> Layout:
    return Layout(schema, partition_by, False, "", False, "zstd", file_bytes)


def written(root: Path, of: Layout, *batches: pa.RecordBatch) -> tuple[list[WrittenFile], FileSet]:
    files = FileSet(Location.of(str(root)), of, "ws-test")
    for batch in batches:
        files.add(batch)
    return files.finish(), files


def offsets(root: Path, file: WrittenFile) -> list[int]:
    found: list[int] = pq.read_table(root / file.path, partitioning=None)["offset"].to_pylist()
    return found


def test_rows_go_to_one_file_per_combination_of_values(tmp_path: Path) -> None:
    dates = [DAY, None, DAY, None]

    files, _ = written(
        tmp_path, layout("topic", "date"), rows(range(4), "a", dates=dates), rows([7], "b")
    )

    assert [(dict(file.partition), offsets(tmp_path, file)) for file in files] == [
        ({"topic": "a", "date": "2026-03-01"}, [0, 2]),
        ({"topic": "a", "date": None}, [1, 3]),
        ({"topic": "b", "date": "2026-03-01"}, [7]),
    ]
    assert "topic" not in pq.read_schema(tmp_path / files[0].path).names


@pytest.mark.parametrize("topic", ["a/b", "a=b", "a b", "50%", "ä", "x:y", "..", "#?"])
def test_values_cannot_leave_their_folder(tmp_path: Path, topic: str) -> None:
    files, _ = written(tmp_path, layout("topic"), rows([1], topic))

    assert Path(files[0].path).parent.parent == Path()
    assert offsets(tmp_path, files[0]) == [1]


def test_a_stretch_out_of_order_is_sorted(tmp_path: Path) -> None:
    files, of = written(tmp_path, layout(), rows([5, 3, 4]), rows([2, 9]))

    assert [offsets(tmp_path, file) for file in files] == [[2, 3, 4, 5, 9]]
    assert of.ranges == {("orders", 0): OffsetRange(2, 9, 5)}


def test_what_begins_too_early_for_a_file_goes_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "ROW_GROUP_BYTES", 1)

    files, _ = written(
        tmp_path, layout(), rows([5, 6]), rows([0, 1], partition=1), rows([7]), rows([6]), rows([8])
    )

    assert [offsets(tmp_path, file) for file in files] == [[5, 6, 0, 1, 7], [6, 8]]


def test_a_file_that_is_large_enough_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "ROW_GROUP_BYTES", 1)

    files, _ = written(tmp_path, layout(file_bytes=1), *(rows([at]) for at in range(3)))

    assert [offsets(tmp_path, file) for file in files] == [[0], [1], [2]]


def test_memory_does_not_grow_with_rows_or_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "ROW_GROUP_BYTES", 50_000)
    monkeypatch.setattr(table_files, "BUFFERED_BYTES", 100_000)
    monkeypatch.setattr(table_files, "OPEN_FILES", 3)
    files = FileSet(Location.of(str(tmp_path)), layout("topic"), "ws-test")

    for at in range(40):
        files.add(rows(range(at * 10, at * 10 + 10), f"t{at % 7}", value=b"x" * 2000))

        assert files._buffered_bytes <= 100_000
        assert len(files._open) <= 3

    assert sum(file.rows for file in files.finish()) == 400


def test_the_log_is_told_bounds_of_numbers_dates_and_times(tmp_path: Path) -> None:
    files, _ = written(tmp_path, layout("topic"), rows([3, 5]), rows([9]))

    stats = json.loads(files[0].stats)

    assert stats["numRecords"] == 3
    assert (stats["minValues"]["offset"], stats["maxValues"]["offset"]) == (3, 9)
    assert stats["minValues"]["timestamp"] == "2026-03-01T12:00:00.000003Z"
    assert stats["maxValues"]["date"] == "2026-03-01"
    assert stats["nullCount"]["offset"] == 0
    assert "value" not in stats["minValues"]


def test_times_are_stored_in_utc_and_read_by_anyone(tmp_path: Path) -> None:
    files, _ = written(tmp_path, layout(), rows([0]))

    stored = pq.read_table(tmp_path / files[0].path)

    assert stored.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert stored["timestamp"][0].as_py() == dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def test_frames_without_offsets_keep_their_order(tmp_path: Path) -> None:
    schema = StructType([StructField("n", LongType())])
    numbers = pa.RecordBatch.from_pydict({"n": [3, 1, 2]})

    files, of = written(tmp_path, layout(schema=schema), numbers)

    assert pq.read_table(tmp_path / files[0].path)["n"].to_pylist() == [3, 1, 2]
    assert of.ranges == {}


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    files = FileSet(Location.of(str(tmp_path)), layout("topic"), "ws-test")
    files.add(rows(range(10)))
    files.finish()

    files.discard()

    assert not [*tmp_path.rglob("*.parquet")]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.integers(0, 1),
            st.lists(st.integers(0, 50), min_size=1, max_size=8),
        ),
        max_size=12,
    ),
    group_bytes=st.sampled_from([1, 400, 1 << 20]),
)
def test_every_row_is_written_once_and_offsets_ascend(
    tmp_path: Path,
    batches: list[tuple[str, int, list[int]]],
    group_bytes: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_files, "ROW_GROUP_BYTES", group_bytes)
        files, of = written(
            tmp_path, layout("topic"), *(rows(found, topic, part) for topic, part, found in batches)
        )

    brought = []
    for file in files:
        table = pq.read_table(tmp_path / file.path, partitioning=None)
        places = [*zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)]
        for partition in (0, 1):
            of_partition = [offset for at, offset in places if at == partition]
            assert of_partition == sorted(of_partition)
        brought += [(dict(file.partition)["topic"], *place) for place in places]
    given_rows = [(topic, part, offset) for topic, part, found in batches for offset in found]
    assert sorted(brought) == sorted(given_rows)
    assert sum(found.rows for found in of.ranges.values()) == len(given_rows)
