"""Tables through Spark: written by streams, read back in one line."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.table_queries import ROWS, counted, next_batch
from waystation.spark.table_history import recorded_ranges
from waystation.spark.table_options import KINDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.heavy(45)


def load(spark: "SparkSession", path: Path, **options: str) -> "DataFrame":
    return spark.read.format("waystation.table").options(**options).load(str(path))


def keys(frame: "DataFrame") -> list[int]:
    return sorted(int(bytes(row.key)) for row in frame.select("key").collect())


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_spark_runs_again_is_taken_once(
    spark: "SparkSession", tmp_path: Path, kind: str
) -> None:
    for _ in range(2):
        next_batch(spark, tmp_path, format=kind)
    # Spark dies after the table's commit: it never learns of it.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()

    next_batch(spark, tmp_path, format=kind)

    lake, refused = load(spark, tmp_path / "lake"), load(spark, tmp_path / "refused")
    assert sorted(keys(lake) + keys(refused)) == [*range(3 * ROWS)]
    assert [commit.batch for commit in recorded_ranges(str(tmp_path / "lake"))] == [0, 1, 2]
    assert lake.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "date"]
    assert dict(refused.dtypes)["value"] == "binary"
    assert {tuple(row) for row in refused.select("reason").distinct().collect()} == {
        ("ends in zero",)
    }
    if kind == "parquet":
        assert keys(spark.read.parquet(str(tmp_path / "lake"))) == keys(lake)


def test_a_frame_keeps_the_snapshot_that_it_was_loaded_from(
    spark: "SparkSession", tmp_path: Path
) -> None:
    next_batch(spark, tmp_path)
    before = load(spark, tmp_path / "lake")
    next_batch(spark, tmp_path)

    assert before.count() == ROWS * 9 // 10
    assert load(spark, tmp_path / "lake").count() == 2 * before.count()
    assert load(spark, tmp_path / "lake", version="1").count() == before.count()


def test_a_narrower_schema_reads_less(spark: "SparkSession", tmp_path: Path) -> None:
    next_batch(spark, tmp_path)

    frame = (
        spark.read.format("waystation.table")
        .schema("topic string, offset long")
        .load(str(tmp_path / "lake"))
    )

    assert frame.columns == ["topic", "offset"]
    assert {row.topic for row in frame.collect()} == {"even", "odd"}


def test_a_new_checkpoint_is_a_new_sink_unless_told_otherwise(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Without a sinkId the query's own id serves: a fresh checkpoint writes everything anew."""
    next_batch(spark, tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    next_batch(spark, tmp_path)

    assert load(spark, tmp_path / "lake").count() == 2 * ROWS * 9 // 10

    next_batch(spark, tmp_path, sinkId="mine")
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(Exception, match="sink mine has written here from another checkpoint"):
        next_batch(spark, tmp_path, sinkId="mine")


def test_frames_are_appended(spark: "SparkSession", tmp_path: Path) -> None:
    path = str(tmp_path / "numbers")

    for _ in range(2):
        spark.range(5).write.format("waystation.table").mode("append").save(path)

    assert sorted(row.id for row in load(spark, Path(path)).collect()) == sorted([*range(5)] * 2)


def test_a_task_that_fails_leaves_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    # One task: of several, Spark may forget one that ends while the failure of another is told.
    numbers = spark.range(0, 4000, 1, 1).selectExpr("if(id = 3999, raise_error('no'), id) as id")

    with pytest.raises(Exception, match="no"):
        numbers.write.format("waystation.table").mode("append").save(str(path))

    assert [*path.rglob("*.parquet")] == []
    assert load(spark, path).count() == 0


def test_what_is_refused_is_said_plainly(spark: "SparkSession", tmp_path: Path) -> None:
    next_batch(spark, tmp_path)
    lake = str(tmp_path / "lake")
    (tmp_path / "file").touch()

    def write(mode: str, path: str) -> None:
        spark.range(3).write.format("waystation.table").mode(mode).save(path)

    def stream(**options: str) -> None:
        frame = counted(spark).writeStream.format("waystation.table").options(**options)
        frame.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()

    attempts: list[tuple[Any, str]] = [
        (lambda: load(spark, tmp_path / "none"), "there is no table here"),
        (lambda: load(spark, tmp_path / "lake", verison="1"), "did you mean version?"),
        (lambda: load(spark, tmp_path / "lake", version="99").count(), "option version"),
        (lambda: write("overwrite", lake), "only ever adds rows"),
        (lambda: write("append", lake), "has no column id"),
        (lambda: write("append", str(tmp_path / "file" / "x")), "cannot be made"),
        (lambda: stream(path=lake, sinkid="s", partitionBy="topic"), "quarantine_reason"),
        (lambda: stream(), "option path is missing"),
    ]

    for attempt, expected in attempts:
        with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
            attempt()
        assert expected in str(caught.value)
        assert "Traceback" not in str(caught.value)
