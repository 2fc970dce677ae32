"""Sessions are told once, when they are over, with all of their messages."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.pipelines.topic_contents import contents, create, fill, forget_commits
from waystation.pipelines.failures import JobError
from waystation.pipelines.job import follow
from waystation.pipelines.sessions import command, sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.heavy(20)

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECOND_MS = 1_000


def at(second: int, key: str | None, **more: Any) -> dict[str, Any]:
    """A message of that second after noon, in a partition that says nothing."""
    noon_ms = int(NOON.timestamp() * SECOND_MS)
    return {
        "value": b"xx",
        "key": key,
        "timestamp": noon_ms + second * SECOND_MS,
        "partition": second % 2,
        **more,
    }


def shown(second: int) -> str:
    return f"2026-01-31T12:{second // 60:02}:{second % 60:02}.000000Z"


def test_sessions_are_told_once_and_in_order_when_the_topic_has_moved_on(
    spark: "SparkSession", bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic, f"{topic}-out")
    asked: dict[str, Any] = {
        "bootstrap": bootstrap,
        "topics": topic,
        "to": f"{topic}-out",
        "checkpoint": tmp_path / "state",
        "gap": "10 seconds",
        "late": "5 seconds",
        "figures": ["max(offset) AS furthest"],
        "available_now": True,
    }
    # Anna comes twice, Ben once and somebody without a name; Cleo is still there at the end.
    fill(bootstrap, topic, [at(second, "anna") for second in (0, 4, 9, 30, 31)])
    fill(bootstrap, topic, [at(1, "ben"), at(2, None), at(100, "cleo")])
    follow(sessions(spark, **asked), json_output=True)
    first = contents(bootstrap, f"{topic}-out")

    forget_commits(tmp_path / "state")
    fill(bootstrap, topic, [at(105, "cleo"), at(3, "late"), at(200, "dora")])
    follow(sessions(spark, **asked), json_output=True)

    told = [json.loads(one.value or b"") for one in contents(bootstrap, f"{topic}-out")]
    assert sorted(told, key=lambda one: one["start"]) == [
        session("anna", 0, 9, 3, furthest=1),
        session("ben", 1, 1, 1, furthest=2),
        session("anna", 30, 31, 2, furthest=2),
        session("cleo", 100, 105, 2, furthest=4),
    ]
    assert len(first) == 3
    by_anna = [one for one in first if one.key == b"anna"]
    assert [json.loads(one.value or b"")["messages"] for one in by_anna] == [3, 2]
    assert [one.timestamp for one in by_anna] == [at(9, "")["timestamp"], at(31, "")["timestamp"]]


def session(key: str, start: int, end: int, messages: int, **more: int) -> dict[str, Any]:
    return {
        "key": key,
        "start": shown(start),
        "end": shown(end),
        "messages": messages,
        "bytes": messages * (len(key) + 2),
        **more,
    }


def test_sessions_by_an_expression_become_rows_of_a_table(
    spark: "SparkSession", bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """By the command, which also tells how many came too late."""
    create(bootstrap, topic)
    lake, words = str(tmp_path / "lake"), ["--bootstrap", bootstrap, "--topics", topic]
    words += ["--available-now", "--gap", "10 seconds", "--late", "1 second", "--lake", lake]
    words += ["--by", "octet_length(value)", "--checkpoint", str(tmp_path / "state")]
    fill(bootstrap, topic, [at(0, "a"), at(5, "b"), at(9, "c", value=b"four"), at(60, "d")])
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output

    fill(bootstrap, topic, [at(1, "a"), at(120, "e")])
    again = CliRunner().invoke(command, words)

    assert again.exit_code == 0, again.output
    assert "left out for being later than --late 1 second: 1" in again.output
    rows = spark.read.format("waystation.table").load(lake).orderBy("start").collect()
    assert [(row["key"], row["messages"]) for row in rows] == [(2, 2), (4, 1), (2, 1)]
    assert rows[0]["end"] == datetime(2026, 1, 31, 12, 0, 5)
    other = CliRunner().invoke(command, [*words, "--checkpoint", str(tmp_path / "other")])
    assert other.exit_code == 1
    assert "is a table already" in other.output


@pytest.mark.parametrize("more", [{}, {"to": "x", "lake": "y"}])
def test_sessions_go_to_one_place(spark: "SparkSession", tmp_path: Path, more: Any) -> None:
    with pytest.raises(JobError, match="once: --to TOPIC or --lake DIR"):
        sessions(spark, bootstrap="127.0.0.1:1", topics="t", checkpoint=tmp_path, **more)
