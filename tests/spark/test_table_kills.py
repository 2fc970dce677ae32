"""Whoever dies, and wherever: every row is in the lake or in the quarantine, once."""

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.table_queries import POINTS, ROWS, next_batch, register_deadly
from tests.support.soak import SOAKING, count
from waystation.spark.table_history import recorded_ranges
from waystation.spark.table_ranges import merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.alone


def check_once(spark: "SparkSession", home: Path, batches: int) -> None:
    """Every row of the batches is in one of the tables, once, and no other file lies about."""
    held: list[int] = []
    for name in ("lake", "refused"):
        rows = spark.read.format("waystation.table").load(str(home / name)).select("key")
        keys = [int(bytes(row.key)) for row in rows.collect()]
        assert all((key % 10 == 0) == (name == "refused") for key in keys)
        held += keys
        recorded = merge(commit.ranges for commit in recorded_ranges(str(home / name)))
        assert sum(brought.rows for brought in recorded.values()) == len(keys)
        named = {
            row[0]
            for row in spark.read.format("waystation.table")
            .option("includePosition", "true")
            .load(str(home / name))
            .select("_file")
            .distinct()
            .collect()
        }
        lying = {str(path.relative_to(home / name)) for path in (home / name).rglob("*.parquet")}
        assert lying == named
    assert sorted(held) == [*range(batches * ROWS)]


def start_driver(home: Path, point: str, batch: int) -> "subprocess.Popen[bytes]":
    home.mkdir()
    with (home / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.table_queries", home, point, str(batch)],
            cwd=Path(__file__).parents[2],
            stdout=log,
            stderr=log,
        )


def test_a_driver_that_dies_at_any_point_loses_and_doubles_nothing(
    spark: "SparkSession", tmp_path: Path
) -> None:
    points = POINTS if SOAKING else POINTS[2:]
    drivers = [start_driver(tmp_path / str(at), point, 1) for at, point in enumerate(points)]

    for at, driver in enumerate(drivers):
        assert driver.wait(100) == -signal.SIGKILL, (tmp_path / str(at) / "log").read_text()
    for at in range(len(drivers)):
        # The first start runs the batch again that was under way, and then one more.
        next_batch(spark, tmp_path / str(at), sinkId="test")

        check_once(spark, tmp_path / str(at), 3)


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_dies_at_any_point_loses_and_doubles_nothing(
    spark: "SparkSession", tmp_path: Path, point: str
) -> None:
    next_batch(spark, tmp_path, sinkId="test")
    register_deadly(spark, point, 1, [])

    with pytest.raises(Exception, match="STREAM_FAILED"):
        next_batch(spark, tmp_path, "deadly.table", sinkId="test")
    next_batch(spark, tmp_path, sinkId="test")

    check_once(spark, tmp_path, 3)


def test_drivers_killed_at_random_lose_and_double_nothing(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Kill -9 of the Python driver takes its Java machine along, whatever that was doing."""
    if not SOAKING:
        return
    dice = random.Random(20)
    home = tmp_path / "home"
    for _ in range(count(0, 20)):
        driver = start_driver(home, "nowhere", -1) if not home.exists() else _again(home)
        try:
            driver.wait(dice.uniform(10, 25))
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait()
    query = next_batch(spark, home, sinkId="test")

    assert query.lastProgress is not None
    check_once(spark, home, query.lastProgress.batchId + 1)


def _again(home: Path) -> "subprocess.Popen[bytes]":
    with (home / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.table_queries", home, "nowhere", "-1"],
            cwd=Path(__file__).parents[2],
            stdout=log,
            stderr=log,
        )
