"""Iceberg tables: by others, and after their columns have changed."""

from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from pyiceberg.types import StringType as Text

from tests.spark.rows import rows
from tests.spark.tables import FIRST, SECOND, opened, read, write_and_commit


def test_iceberg_tables_are_read_by_pyiceberg_itself(tmp_path: Path) -> None:
    topic = "a-topic-whose-name-is-longer-than-most"
    target = opened(tmp_path / "lake", "iceberg", by="topic,date")
    write_and_commit(target, FIRST, rows(range(3), topic))

    table = StaticTable.from_metadata(target.location.path)

    assert table.scan(row_filter=f"topic = '{topic}'").to_arrow()["offset"].to_pylist() == [0, 1, 2]
    assert table.scan(row_filter="topic = 'other'").to_arrow().num_rows == 0


def test_iceberg_tables_that_changed_are_read_by_their_new_columns(tmp_path: Path) -> None:
    target = opened(tmp_path / "lake", "iceberg")
    write_and_commit(target, FIRST, rows([0]))
    catalog = SqlCatalog("waystation", uri=f"sqlite:///{tmp_path}/lake/metadata/waystation.db")
    with catalog.load_table("lake.table").update_schema() as update:
        update.add_column("note", Text())
    write_and_commit(target, SECOND, rows([1]))

    found = read(target.location.folder, ["offset", "note"])

    assert sorted(row["offset"] for row in found) == [0, 1]
    assert {row["note"] for row in found} == {None}
