"""``archive --to``: topics into a topic, each message once, as it was."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.pipelines.topic_contents import Read, contents, create, fill
from waystation.pipelines.archive import command
from waystation.pipelines.archive_copy import copy_topics
from waystation.pipelines.failures import JobError
from waystation.pipelines.job import follow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.heavy(10)


def originals(first: int, last: int) -> list[dict[str, Any]]:
    return [
        {
            "value": f"v{number}",
            "key": None if number % 5 == 0 else f"k{number % 3}",
            "partition": number % 2,
            "timestamp": 1_700_000_000_000 + number,
            "headers": [("h", b"x")],
        }
        for number in range(first, last)
    ]


def as_copied(one: Read) -> dict[str, Any]:
    """What the original was, as far as a copy tells."""
    return {
        "value": (one.value or b"").decode(),
        "key": one.key.decode() if one.key else None,
        "partition": one.partition,
        "timestamp": one.timestamp,
        "headers": [*one.headers[:1]],
    }


def test_topics_are_copied_partition_by_partition_and_then_what_came_meanwhile(
    spark: "SparkSession", bootstrap: str, topic: str, tmp_path: Path
) -> None:
    to, checkpoint = f"{topic}-copy", tmp_path / "c"
    create(bootstrap, topic, to)

    def run() -> None:
        query = copy_topics(
            spark,
            bootstrap=bootstrap,
            topics=topic,
            to="{topic}-copy",
            checkpoint=checkpoint,
            keep_partitions=True,
            available_now=True,
            sink_id="copies",
        )
        follow(query, json_output=True)

    fill(bootstrap, topic, originals(0, 20))
    run()
    # As if the driver had died between the sink's commit and Spark's: the batch is repeated.
    for left in (checkpoint / "commits").iterdir():
        left.unlink()
    fill(bootstrap, topic, originals(20, 30))
    run()

    found = contents(bootstrap, to)
    wanted = originals(0, 30)
    assert [as_copied(one) for one in found] == wanted[0::2] + wanted[1::2]
    assert dict(found[-1].headers) == {
        "h": b"x",
        "archive.topic": topic.encode(),
        "archive.partition": b"1",
        "archive.offset": b"14",
        "archive.timestamp": b"1700000000029",
        "archive.run": b"copies",
    }


def test_a_copy_into_itself_or_nowhere_is_refused(
    spark: "SparkSession", bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic)
    asked: dict[str, Any] = {"bootstrap": bootstrap, "checkpoint": tmp_path / "c"}

    with pytest.raises(JobError, match="never end"):
        copy_topics(spark, topics=topic, to="{topic}", **asked)
    with pytest.raises(JobError, match=f"topic create {topic}-gone"):
        copy_topics(spark, topics=topic, to="{topic}-gone", **asked)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "--lake DIR or --to TOPIC"),
        (("--lake", "l", "--to", "t"), "--lake DIR or --to TOPIC"),
        (("--to", "t"), "--checkpoint DIR"),
        (("--to", "t", "--value-format", "json"), "--value-format goes with --lake only"),
        (("--to", "t", "--format", "parquet"), "--format goes with --lake only"),
        (("--lake", "l", "--keep-partitions"), "--keep-partitions goes with --to only"),
        (("--lake", "l", "--sink-option", "a=b"), "--sink-option goes with --to only"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: tuple[str, ...], named: str) -> None:
    told = CliRunner().invoke(command, ["--topics", "orders", *words])

    assert told.exit_code == 2
    assert named in told.output
