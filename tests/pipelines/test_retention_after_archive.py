"""A topic waits for the archive job: what is in the lake goes from the log, and nothing else."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waystation import Admin, Producer
from waystation.client.offsets import EARLIEST
from waystation.pipelines.archive import archive, default_group
from waystation.pipelines.job import follow
from waystation.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.heavy(10)

TOPIC, COUNT = "orders", 400
OPTIONS = {"log.retention.check.interval.ms": "100", "offsets.topic.num.partitions": "2"}
SOON_S = 20.0


def test_what_the_job_has_archived_may_go_and_nothing_else(
    spark: "SparkSession", tmp_path: Path
) -> None:
    lake = str(tmp_path / "lake" / "orders")
    with BrokerProcess(tmp_path / "data", options=OPTIONS).start() as broker:
        asyncio.run(create(broker.bootstrap, default_group(lake)))
        asyncio.run(fill(broker.bootstrap))
        time.sleep(1)  # retention has gone round by now, and has let everything be
        assert start_of(broker.bootstrap) == 0

        query = archive(
            spark, bootstrap=broker.bootstrap, topics=TOPIC, lake=lake, available_now=True
        )
        follow(query, json_output=True)
        await_true(lambda: start_of(broker.bootstrap) > COUNT // 2)

        asyncio.run(fill(broker.bootstrap))
        time.sleep(1)
        assert start_of(broker.bootstrap) <= COUNT

    rows = spark.read.format("waystation.table").load(lake).select("offset").collect()
    assert sorted(row["offset"] for row in rows) == list(range(COUNT))


async def create(bootstrap: str, group: str) -> None:
    ring = {"segment.bytes": "20000", "retention.bytes": "0", "retention.after.archive": group}
    async with Admin(bootstrap) as admin:
        await admin.create_topic(TOPIC, 1, configs=ring)


async def fill(bootstrap: str) -> None:
    async with Producer(bootstrap, batch_bytes=4_000) as producer:
        for number in range(COUNT):
            producer.submit(TOPIC, b"%0500d" % number)


def start_of(bootstrap: str) -> int:
    async def ask() -> int:
        async with Admin(bootstrap) as admin:
            found = await admin.list_offsets({(TOPIC, 0): EARLIEST})
        return next(iter(found.values())).offset

    return asyncio.run(ask())


def await_true(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < deadline, f"not so after {SOON_S} s"
        time.sleep(0.05)
