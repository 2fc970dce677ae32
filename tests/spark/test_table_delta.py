"""Delta tables: of others, by others, and what may not be read or written."""

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import (
    LongType,
    StructField,
    StructType,
)

from tests.spark.rows import DAY, rows
from tests.spark.tables import (
    FIRST,
    offsets,
    opened,
    read,
    write_and_commit,
)
from waystation.spark.table_cleaning import vacuum
from waystation.spark.table_errors import TableError

SPARKS = Path(__file__).parent / "tables_of_spark_delta"


def test_delta_tables_of_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    first = pa.table({"n": [1, 2], "day": [DAY, None], "who": ["a/b", None]})
    write_deltalake(path, first, partition_by=["day", "who"])
    later = pa.table(
        {"n": [3], "day": [DAY], "who": ["x y"], "more": [{"deep": [1.5]}]},
    )
    write_deltalake(path, later, mode="append", schema_mode="merge")

    assert sorted(read(path), key=lambda row: row["n"]) == [
        {"n": 1, "day": DAY, "who": "a/b", "more": None},
        {"n": 2, "day": None, "who": None, "more": None},
        {"n": 3, "day": DAY, "who": "x y", "more": {"deep": [1.5]}},
    ]
    assert len(read(path, version="0")) == 2
    assert read(path, ["who"], version="0") in (
        [{"who": "a/b"}, {"who": None}],
        [{"who": None}, {"who": "a/b"}],
    )


def test_delta_tables_of_spark_are_read() -> None:
    found = sorted(read(SPARKS / "partitioned"), key=lambda row: row["id"])

    assert [row["id"] for row in found] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert found[1] == {
        "id": 1,
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC),
        "odd": 1,
        "many": [{"a": 1}],
    }
    assert len(read(SPARKS / "partitioned", version="0")) == 10
    assert len(read(SPARKS / "without_deletions")) == 100
    with pytest.raises(TableError, match=r"uses deletionVectors.*PURGE"):
        read(SPARKS / "deletion_vectors")


def test_fields_added_inside_a_column_are_null_in_older_rows(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    write_deltalake(path, pa.table({"it": [{"a": 1}], "many": [[{"a": 1}]]}))
    newer = pa.table({"it": [{"a": 2, "b": "x"}], "many": [[{"a": 2, "b": "x"}]]})
    write_deltalake(path, newer, mode="append", schema_mode="merge")

    found = sorted(read(path), key=lambda row: int(row["it"]["a"]))

    assert found == [
        {"it": {"a": 1, "b": None}, "many": [{"a": 1, "b": None}]},
        {"it": {"a": 2, "b": "x"}, "many": [{"a": 2, "b": "x"}]},
    ]


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping", "somethingNew"])
def test_delta_features_that_would_be_read_wrongly_are_refused(
    tmp_path: Path, feature: str
) -> None:
    path = tmp_path / "theirs"
    write_deltalake(path, pa.table({"n": [1]}))
    _require(path, feature)

    if feature == "deletionVectors":
        assert read(path) == [{"n": 1}], "the feature is on, and no row is deleted"
        return
    with pytest.raises(TableError, match=rf"{feature}|cannot be opened"):
        read(path)


def _require(path: Path, feature: str) -> None:
    """Write the table's first entry anew, with a feature that readers must know."""
    entry = path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": [feature],
                "writerFeatures": [feature],
            }
        if "metaData" in action and feature == "columnMapping":
            action["metaData"]["configuration"] = {
                "delta.columnMapping.mode": "name",
                "delta.columnMapping.maxColumnId": "1",
            }
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][0]["metadata"] = {
                "delta.columnMapping.id": 1,
                "delta.columnMapping.physicalName": "col-1",
            }
            action["metaData"]["schemaString"] = json.dumps(schema)
    entry.write_text("\n".join(map(json.dumps, actions)))


def test_delta_tables_with_rules_for_rows_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    write_deltalake(path, pa.table({"n": pa.array([1], pa.int64())}))
    DeltaTable(path).alter.add_constraint({"small": "n < 5"})

    with pytest.raises(TableError, match=r"rules .*delta\.constraints\.small"):
        opened(path, schema=StructType([StructField("n", LongType())]), by="")


def test_delta_tables_are_read_by_deltalake_itself(tmp_path: Path) -> None:
    target = opened(tmp_path / "lake", by="topic,date")
    write_and_commit(target, FIRST, rows(range(3), topic="a b/c"))

    table = DeltaTable(target.location.path)

    assert table.to_pyarrow_table()["offset"].to_pylist() == [0, 1, 2]
    assert table.to_pyarrow_table()["topic"].unique().to_pylist() == ["a b/c"]
    assert table.count() == 3


def test_compacted_delta_tables_keep_their_rows_and_their_past(tmp_path: Path) -> None:
    target = opened(tmp_path / "lake")
    for batch in range(3):
        write_and_commit(target, FIRST._replace(batch=batch), rows([batch]))
    DeltaTable(target.location.path).optimize.compact()

    write_and_commit(target, FIRST._replace(batch=2), rows([2]))

    assert vacuum(target.location.path, older_than_hours=0) == []
    assert offsets(target) == [0, 1, 2]
    assert len(read(target.location.folder, version="3")) == 3
