"""``metrics`` on a real topic: every record once, in its own window, late or not."""

import asyncio
import json
import shutil
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.pipelines.topic_contents import contents
from waystation import Admin, Producer
from waystation.pipelines.failures import JobError
from waystation.pipelines.metrics import command, metrics
from waystation.pipelines.metrics_table import MetricsTable, Row
from waystation.pipelines.metrics_topic import MetricsTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.heavy(20)

WINDOW_S = 60
START_MS = int(time.time()) // WINDOW_S * WINDOW_S * 1_000 - 1_800_000
"""Half an hour ago."""


async def produce(bootstrap: str, topic: str, minutes: Iterable[int], key: bytes) -> None:
    """One record for each minute that is listed."""
    async with Producer(bootstrap) as producer:
        for number, minute in enumerate(minutes):
            producer.submit(
                topic,
                b"v" * 97,
                key=key,
                timestamp=START_MS + minute * 60_000 + number,
                partition=number % 2,
            )
        await producer.flush()


async def create(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 2)


def rows(to: Path) -> list[Row]:
    return MetricsTable.open(str(to)).rows(top_keys=3)


def minutes(to: Path) -> dict[int, int]:
    return {
        round(row.window_start.timestamp() * 1_000 - START_MS) // 60_000: row.messages
        for row in rows(to)
    }


def run(bootstrap: str, topic: str, to: Path, *more: str) -> Any:
    """The command, in this process: it finds the session that the tests have."""
    return CliRunner().invoke(
        command,
        [
            *("--bootstrap", bootstrap, "--topics", topic, "--to", str(to), "--available-now"),
            *("--window", str(WINDOW_S), "--late", "600", *more),
        ],
    )


def told_of(bootstrap: str, to_topic: str) -> list[tuple[int, int, int]]:
    """Minute, messages and late ones of each window, in the order in which they were told."""
    found = [json.loads(one.value or b"") for one in contents(bootstrap, to_topic)]
    return [
        (
            round(datetime.fromisoformat(one["window_start"]).timestamp() * 1_000 - START_MS)
            // 60_000,
            one["messages"],
            one["late"],
        )
        for one in found
    ]


def test_amended_windows_are_messages_of_a_topic_once(
    spark: "SparkSession",
    bootstrap: str,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    to, to_topic = tmp_path / "metrics", f"{topic}-windows"
    asyncio.run(create(bootstrap, topic))
    words = ("--no-report", "--to-topic", to_topic, "--top-keys", "1")
    refused = run(bootstrap, topic, to, *words)
    assert f"waystation topic create {to_topic}" in refused.output
    asyncio.run(create(bootstrap, to_topic))
    asyncio.run(produce(bootstrap, topic, [0] * 10 + [20] * 2, b"abc"))

    # It dies when the table has the batch and the topic has not.
    with monkeypatch.context() as patched:
        patched.setattr(MetricsTopic, "publish", lambda *_: 1 / 0)
        assert run(bootstrap, topic, to, *words).exit_code == 1
    assert minutes(to) == {0: 10, 20: 2}
    assert told_of(bootstrap, to_topic) == []
    assert run(bootstrap, topic, to, *words).exit_code == 0
    assert sorted(told_of(bootstrap, to_topic)) == [(0, 10, 0), (20, 2, 0)]

    asyncio.run(produce(bootstrap, topic, [0] * 3, b"xyz"))
    assert run(bootstrap, topic, to, *words).exit_code == 0
    # As if the driver had died between the sink's commit and Spark's: the batch is repeated.
    for name in ("1", ".1.crc"):
        (tmp_path / "metrics-checkpoint" / "commits" / name).unlink(missing_ok=True)
    assert run(bootstrap, topic, to, *words).exit_code == 0

    assert sorted(told_of(bootstrap, to_topic)) == [(0, 10, 0), (0, 13, 3), (20, 2, 0)]
    last = next(
        one for one in contents(bootstrap, to_topic) if one.value and b'"messages": 13' in one.value
    )
    start = datetime.fromtimestamp(START_MS / 1_000, UTC).isoformat(timespec="milliseconds")
    assert last.key == f"{topic} {start.replace('+00:00', 'Z')}".encode()
    assert json.loads(last.value or b"")["top_keys"] == [{"key": "abc", "messages": 10}]


def test_records_are_counted_once_however_late_and_however_often_batches_are_repeated(
    spark: "SparkSession", bootstrap: str, topic: str, tmp_path: Path
) -> None:
    to, checkpoint = tmp_path / "metrics", tmp_path / "metrics-checkpoint"
    asyncio.run(create(bootstrap, topic))
    asyncio.run(produce(bootstrap, topic, [0] * 10 + [1] * 5 + [20] * 2, b"abc"))
    first = run(bootstrap, topic, to, "--no-report")
    assert first.exit_code == 0, first.output
    assert minutes(to) == {0: 10, 1: 5, 20: 2}

    # Twenty minutes late for one window, ten for the next, and one in time.
    asyncio.run(produce(bootstrap, topic, [0] * 3 + [9, 21], b"xyz"))
    second = run(bootstrap, topic, to, "--no-report")
    assert second.exit_code == 0, second.output
    assert minutes(to) == {0: 13, 1: 5, 9: 1, 20: 2, 21: 1}
    assert {row.messages: row.late for row in rows(to)}[13] == 3
    assert sum(row.late for row in rows(to)) == 4

    # As if the driver had died between the table's commit and Spark's: the batch is repeated.
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    again = run(bootstrap, topic, to)
    assert again.exit_code == 0, again.output
    assert minutes(to) == {0: 13, 1: 5, 9: 1, 20: 2, 21: 1}

    oldest = rows(to)[0]
    assert oldest.bytes == 13 * 100
    assert oldest.top_keys == [("abc", 10), ("xyz", 3)]
    assert 1_700_000 < oldest.age_p50_ms <= oldest.age_p99_ms <= oldest.age_max_ms
    page = (tmp_path / "metrics-report.html").read_text()
    assert page.count("<svg") == 4
    assert topic in page

    # Another checkpoint would count everything again.
    shutil.rmtree(checkpoint)
    refused = run(bootstrap, topic, to, "--no-report")
    assert refused.exit_code == 1
    assert "another checkpoint" in refused.output
    assert minutes(to) == {0: 13, 1: 5, 9: 1, 20: 2, 21: 1}


def test_what_makes_no_sense_is_refused_before_anything_is_written(
    spark: "SparkSession", bootstrap: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(JobError, match="window_s is 0"):
        metrics(spark, bootstrap=bootstrap, topics="t", to=tmp_path / "t", window_s=0)
    with pytest.raises(JobError, match="cannot be written"):
        metrics(spark, bootstrap=bootstrap, topics="t", to=file / "t")

    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "metadata").write_text('{"id": "some-query"}')
    with pytest.raises(JobError, match="begun is of a job that has begun, but there is no table"):
        metrics(
            spark,
            bootstrap=bootstrap,
            topics="t",
            to=tmp_path / "t",
            checkpoint=tmp_path / "begun",
        )

    assert not (tmp_path / "t").exists()
