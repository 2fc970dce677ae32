"""Broker, executor and driver are killed under a running archive: every offset is there once."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.soak import SOAKING, count
from waystation import Admin, Producer
from waystation.pipelines.archive import archive
from waystation.pipelines.failures import JobFailedError
from waystation.pipelines.job import follow
from waystation.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.heavy(30), pytest.mark.timeout(count(400, 3_600))]

RECORDS = count(4_000, 60_000)
PER_BATCH = 1_000
TOPIC = "orders"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One that may be killed, with the topic to archive."""
    with BrokerProcess(tmp_path / "data").start() as process:
        asyncio.run(_fill(process.bootstrap))
        yield process


async def _fill(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(TOPIC, 2)
    async with Producer(bootstrap) as producer:
        for number in range(RECORDS):
            producer.submit(TOPIC, f"v{number}", key=f"k{number}", partition=number % 2)
            if number % 1_000 == 0:
                await producer.drain()


def asked(broker: BrokerProcess, lake: Path) -> dict[str, Any]:
    return {
        "bootstrap": broker.bootstrap,
        "topics": TOPIC,
        "lake": lake,
        "source_options": {"maxOffsetsPerTrigger": PER_BATCH},
    }


def finish(spark: "SparkSession", broker: BrokerProcess, lake: Path) -> None:
    """Archive what is left, as somebody would who found the job dead."""
    follow(archive(spark, **asked(broker, lake), available_now=True), json_output=True)


def every_offset_is_there_once(spark: "SparkSession", lake: Path) -> None:
    rows = spark.read.format("waystation.table").load(str(lake))
    found = {
        row["partition"]: tuple(row)[1:]
        for row in rows.groupBy("partition")
        .agg({"*": "count", "offset": "max"})
        .selectExpr("partition", "`count(1)`", "`max(offset)`")
        .collect()
    }
    half = RECORDS // 2
    assert found == {0: (half, half - 1), 1: (half, half - 1)}
    assert rows.select("partition", "offset").distinct().count() == RECORDS


def test_a_broker_that_is_killed_costs_nothing(
    spark: "SparkSession", own_broker: BrokerProcess, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    query = archive(spark, **asked(own_broker, lake), every_s=0)

    for _ in range(count(1, 20)):
        _wait_for(lambda: query.lastProgress is not None or not query.isActive)
        own_broker.kill()
        own_broker.start()
    with contextlib.suppress(Exception):  # it may end, and then goes on when started again
        query.processAllAvailable()
    query.stop()

    finish(spark, own_broker, lake)
    every_offset_is_there_once(spark, lake)


def test_executors_that_are_killed_cost_nothing(
    spark: "SparkSession", own_broker: BrokerProcess, tmp_path: Path
) -> None:
    lake, chance = tmp_path / "lake", random.Random(7)
    for _ in range(count(1, 20)):
        query = archive(spark, **asked(own_broker, lake), every_s=0)
        _wait_for(lambda query=query: bool(_workers()) or not query.isActive)
        time.sleep(chance.random() * 0.5)
        for worker in _workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        with contextlib.suppress(Exception):  # a task that died may end the query
            query.awaitTermination(0.2)
        query.stop()

    finish(spark, own_broker, lake)
    every_offset_is_there_once(spark, lake)


def check_a_driver_that_is_killed(
    spark: "SparkSession", own_broker: BrokerProcess, tmp_path: Path
) -> None:
    lake, chance = tmp_path / "lake", random.Random(11)
    command = [sys.executable, "-m", "waystation.pipelines.archive", "--json", "--every", "0"]
    command += ["--bootstrap", own_broker.bootstrap, "--topics", TOPIC, "--lake", str(lake)]
    command += ["--option", f"maxOffsetsPerTrigger={PER_BATCH // 8}"]
    command += ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    for _ in range(count(1, 20)):
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as driver:
            assert driver.stdout is not None
            first = driver.stdout.readline()
            time.sleep(chance.random())
            os.killpg(driver.pid, signal.SIGKILL)
        assert first, "it ended before its first batch did"

    finish(spark, own_broker, lake)
    every_offset_is_there_once(spark, lake)


if SOAKING:  # every day drivers die at each point of a batch, in tests/spark/test_table_kills.py
    test_a_driver_that_is_killed_costs_nothing = check_a_driver_that_is_killed


def test_a_failed_archive_says_why(
    spark: "SparkSession", own_broker: BrokerProcess, tmp_path: Path
) -> None:
    """The topic is deleted under it: an error that names it, and the table stays as it was."""
    lake = tmp_path / "lake"
    finish(spark, own_broker, lake)

    async def recreate() -> None:
        async with Admin(own_broker.bootstrap) as admin:
            await admin.delete_topic(TOPIC)
            await admin.create_topic(TOPIC, 2)

    asyncio.run(recreate())

    with pytest.raises(JobFailedError, match=TOPIC):
        finish(spark, own_broker, lake)

    every_offset_is_there_once(spark, lake)


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "nothing happens"
        time.sleep(0.02)


def _workers() -> list[int]:
    """The Python workers of this session's JVM, without the processes that they are forked from."""
    parents = {pid: parent for pid in _pids() if (parent := _parent(pid)) is not None}
    daemons = [pid for pid in parents if _runs_spark(pid)]
    return [pid for pid in daemons if parents[pid] in daemons and _descends_from_us(pid, parents)]


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _runs_spark(pid: int) -> bool:
    try:
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _descends_from_us(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False
