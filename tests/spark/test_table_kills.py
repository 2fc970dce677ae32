"""Whoever dies, and wherever: every row is in the lake or in the quarantine, once."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.table_queries import POINTS, ROWS, next_batch, register_deadly
from tests.support.sessions import end_session
from tests.support.soak import SOAKING
from waystation.spark.table_history import recorded_ranges
from waystation.spark.table_ranges import merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Java machines are started and killed: a busy computer takes its time.
pytestmark = [pytest.mark.heavy(55), pytest.mark.timeout(7200 if SOAKING else 400)]

# Every day each point once, by one of the two deaths; both deaths at each when soaking.
# Two drivers run side by side.
OF_DRIVERS = [("before commit", "after commit")]
if SOAKING:
    OF_DRIVERS.append(("files", "between the tables"))
OF_WORKERS = POINTS if SOAKING else ("files", "between the tables")


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
    home.mkdir(exist_ok=True)
    with (home / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.table_queries", home, point, str(batch)],
            cwd=Path(__file__).parents[2],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


@pytest.mark.parametrize("points", OF_DRIVERS)
def test_a_driver_that_dies_at_any_point_loses_and_doubles_nothing(
    spark: "SparkSession", tmp_path: Path, points: tuple[str, str]
) -> None:
    homes = {point: tmp_path / point for point in points}
    drivers = {point: start_driver(home, point, 1) for point, home in homes.items()}

    for point, driver in drivers.items():
        assert driver.wait(300) == -signal.SIGKILL, (homes[point] / "log").read_text()
    for home in homes.values():
        # Runs the batch again that was under way, and then one more.
        next_batch(spark, home, sinkId="test")

        check_once(spark, home, 3)


@pytest.mark.parametrize("point", OF_WORKERS)
def test_a_worker_that_dies_at_any_point_loses_and_doubles_nothing(
    spark: "SparkSession", tmp_path: Path, point: str
) -> None:
    next_batch(spark, tmp_path, sinkId="test")
    register_deadly(spark, point, 1, [])

    with pytest.raises(Exception, match="STREAM_FAILED"):
        next_batch(spark, tmp_path, "deadly.table", sinkId="test")
    next_batch(spark, tmp_path, sinkId="test")

    check_once(spark, tmp_path, 3)


def check_drivers_killed_at_random(spark: "SparkSession", tmp_path: Path) -> None:
    """One lake, driver after driver; kill -9 takes the Java machine along, wherever it was."""
    dice = random.Random(20)
    for _ in range(20):
        driver = start_driver(tmp_path, "nowhere", -1)
        began = time.monotonic()
        batches = committed(tmp_path)
        while committed(tmp_path) < batches + 2 and time.monotonic() < began + 300:
            time.sleep(0.05)
        time.sleep(dice.uniform(0, 1.5))
        end_session(driver)

    query = next_batch(spark, tmp_path, sinkId="test")

    assert query.lastProgress is not None
    check_once(spark, tmp_path, query.lastProgress.batchId + 1)


if SOAKING:  # every day they die at the points above
    test_drivers_killed_at_random_lose_and_double_nothing = check_drivers_killed_at_random


def committed(home: Path) -> int:
    """How many batches Spark believes are done."""
    return len([*(home / "checkpoint" / "commits").glob("[0-9]*")])
