"""``capacity`` on a real topic: figures from offsets, disks and a sample."""

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from waystation import Admin, Producer
from waystation.pipelines.capacity import capacity, command
from waystation.pipelines.capacity_estimate import DAY_MS
from waystation.pipelines.failures import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.heavy(10)

PER_DAY = (100, 200, 300, 400, 500)
"""Messages of the last days, the oldest first."""


async def fill(bootstrap: str, topic: str, empty: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 2, configs={"retention.ms": "-1"})
        await admin.create_topic(empty, 1)
    midnight_ms = int(time.time() * 1_000) // DAY_MS * DAY_MS
    async with Producer(bootstrap) as producer:
        for day, messages in enumerate(PER_DAY):
            for number in range(messages):
                # Spread over the day, so that the rates are those of whole days.
                at_ms = midnight_ms - (5 - day) * DAY_MS + (number * DAY_MS) // messages
                producer.submit(
                    topic, b"v" * 996, key=b"four", timestamp=at_ms, partition=number % 2
                )
        await producer.flush()


def test_a_log_is_measured_without_reading_it_all(
    spark: "SparkSession", bootstrap: str, topic: str, tmp_path: Path
) -> None:
    empty, to = f"{topic}-empty", tmp_path / "capacity"
    asyncio.run(fill(bootstrap, topic, empty))
    ended = CliRunner().invoke(
        command,
        [
            *("--bootstrap", bootstrap, "--topics", f"{topic},{empty}", "--to", str(to)),
            *("--retention-days", "7", "--replication-factor", "3", "--json"),
        ],
    )

    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    full, nothing = told["topics"]
    assert full["messages"] == sum(PER_DAY)
    assert full["trend"]["per_day"] == pytest.approx(sum(PER_DAY) / 5, rel=0.02)
    assert full["trend"]["growth_per_day"] == pytest.approx(100, rel=0.1)
    assert full["record_bytes"] == 1_000
    assert sum(PER_DAY) * 1_000 < full["stored_bytes"] < sum(PER_DAY) * 1_200
    assert full["retention_ms"] is None
    daily = [bucket["messages"] for bucket in full["buckets"]]
    assert sum(daily) == sum(PER_DAY)
    assert nothing["messages"] == nothing["storage_bytes"] == 0
    product = full["trend"]["per_day"] * full["stored_bytes_per_message"] * 7 * 3
    assert told["storage_bytes"] == pytest.approx(product)
    assert told["disk_bytes"] > 0
    assert DeltaTable(to).count() == 2
    page = (tmp_path / "capacity-report.html").read_text()
    assert page.count("<svg") == 2
    assert topic in page


def test_nonsense_and_missing_topics_are_named(spark: "SparkSession", bootstrap: str) -> None:
    with pytest.raises(JobError, match="replication_factor 0"):
        capacity(spark, bootstrap=bootstrap, topics="x", replication_factor=0)
    with pytest.raises(JobError, match="no topic is named"):
        capacity(spark, bootstrap=bootstrap, topics=" ,")
    ended = CliRunner().invoke(command, ["--bootstrap", bootstrap, "--topics", "no-such-topic"])
    assert ended.exit_code == 1
    assert "no-such-topic" in ended.output
