"""Each message id once, in whatever partition and batch it comes; nothing else is left out."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipelines.topic_contents import by_key, contents, create, fill, forget_commits
from waystation.pipelines.dedupe import dedupe, id_expression
from waystation.pipelines.failures import JobError
from waystation.pipelines.job import follow
from waystation.pipelines.state_store import checked_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.heavy(40)

HOUR_MS = 3_600_000


def message(number: int, **more: Any) -> dict[str, Any]:
    """The id is in a header and in the value; the key says nothing of it."""
    return {
        "value": f'{{"order": {{"id": {number}}}}}',
        "key": f"k{number % 3}",
        "headers": [("id", b"not this one"), ("id", b"%d" % number)],
        **more,
    }


def run(spark: "SparkSession", bootstrap: str, topic: str, **more: Any) -> None:
    query = dedupe(
        spark, bootstrap=bootstrap, topics=topic, to=f"{topic}-out", available_now=True, **more
    )
    follow(query, json_output=True)


def test_what_comes_again_is_left_out_and_nothing_else(
    spark: "SparkSession", bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """Across partitions, batches and restarts; late and early messages and those without an id."""
    now_ms = time.time_ns() // 1_000_000
    create(bootstrap, topic, f"{topic}-out")
    asked = {"checkpoint": tmp_path / "state", "id": "header:id", "within": "10 minutes"}
    no_id = {"value": "no id", "key": "k0"}
    fill(bootstrap, topic, [message(number) for number in range(30)])
    fill(bootstrap, topic, [message(4), message(4), no_id, no_id])
    elsewhere = {"key": "elsewhere"}
    fill(bootstrap, topic, [message(50, partition=p, **elsewhere) for p in (0, 1, 0, 1)])
    fill(bootstrap, topic, [message(100, timestamp=now_ms + HOUR_MS * 5 // 6)])
    run(spark, bootstrap, topic, **asked)

    forget_commits(tmp_path / "state")
    fill(bootstrap, topic, [message(number) for number in range(20, 40)])
    fill(bootstrap, topic, [message(101, timestamp=now_ms - 100 * HOUR_MS)])
    run(spark, bootstrap, topic, **asked)

    found = by_key(contents(bootstrap, f"{topic}-out"))
    assert found.pop(b"elsewhere") == [b'{"order": {"id": 50}}']
    ids = [*range(30), 100, *range(30, 40), 101]
    assert found.pop(b"k0") == [
        *(b'{"order": {"id": %d}}' % n for n in range(0, 30, 3)),
        b"no id",
        b"no id",
        *(b'{"order": {"id": %d}}' % n for n in range(30, 40, 3)),
    ]
    assert found == {
        b"k%d" % key: [b'{"order": {"id": %d}}' % n for n in ids if n % 3 == key] for key in (1, 2)
    }


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("key", "k1"),
        ("header:id", "4"),
        ("header:absent", None),
        ("header:it's", None),
        ("json:order.id", "4"),
        ("json:$.order.id", "4"),
        ("json:order.absent", None),
        ("crc32(value) % 1 + 8", "8"),
    ],
)
def test_an_id_is_found_where_it_is(spark: "SparkSession", said: str, found: str | None) -> None:
    one = message(4)
    frame = spark.createDataFrame(
        [(one["key"].encode(), one["value"].encode(), one["headers"])],
        "key binary, value binary, headers array<struct<key: string, value: binary>>",
    )

    (row,) = frame.selectExpr(f"cast({id_expression(said)} AS string) AS id").collect()

    assert row["id"] == found


@pytest.mark.parametrize("said", ["", " ", "header:", "json: "])
def test_an_id_that_names_nothing_is_refused(said: str) -> None:
    with pytest.raises(JobError, match="names nothing: try key, header:message-id"):
        id_expression(said)


@pytest.mark.parametrize("said", ["", "soon", "10", "0 minutes", "10 minutes'; DROP", "-1 hours"])
def test_a_time_that_is_none_is_refused(said: str) -> None:
    with pytest.raises(JobError, match=r"--within is .*, no duration: try '90 seconds'"):
        checked_duration("--within", said)


def test_times_are_understood_as_spark_writes_them() -> None:
    assert checked_duration("--within", " 1 Hour  30 minutes") == "1 hour 30 minutes"
