"""Topics into a topic: each message once, in the order of its key, by SQL and by functions."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tests.pipelines.topic_contents import by_key, contents, create, fill, forget_commits, values
from waystation.pipelines.failures import JobError, JobFailedError
from waystation.pipelines.job import follow
from waystation.pipelines.topic_job import sink_name
from waystation.pipelines.transform import command, transform
from waystation.spark.errors import BadOptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.heavy(65)

NOON_MS = 1_769_860_800_000


@pytest.fixture
def out(bootstrap: str, topic: str) -> str:
    """The topic to write to, beside the one to read."""
    create(bootstrap, topic, f"{topic}-out")
    return f"{topic}-out"


def orders(count: int, keys: int = 5) -> list[dict[str, Any]]:
    return [
        {
            "value": json.dumps({"order": number, "amount": number / 2}),
            "key": f"k{number % keys}",
            "timestamp": NOON_MS + number,
            "headers": [("trace", b"%d" % number)],
        }
        for number in range(count)
    ]


def run(spark: "SparkSession", bootstrap: str, topic: str, to: str | None, **more: Any) -> None:
    """Transform all there is."""
    query = transform(spark, bootstrap=bootstrap, topics=topic, to=to, available_now=True, **more)
    follow(query, json_output=True)


# --- what is written --------------------------------------------------------------------------


def test_sql_makes_a_topic_of_a_topic_in_the_order_of_each_key(
    spark: "SparkSession", bootstrap: str, topic: str, out: str, tmp_path: Path
) -> None:
    sql = f"""
        SELECT key, headers, timestamp, struct(value.order, value.amount * 2 AS twice) AS value
        FROM `{topic}` WHERE value.order % 2 = 1"""
    asked = {"checkpoint": tmp_path / "state", "sql": sql, "value_format": "json"}
    fill(bootstrap, topic, orders(100))
    run(spark, bootstrap, topic, out, **asked)

    fill(bootstrap, topic, orders(20))
    forget_commits(tmp_path / "state")
    run(spark, bootstrap, topic, out, **asked)

    found, wanted = contents(bootstrap, out), [*range(1, 100, 2), *range(1, 20, 2)]
    assert by_key(found) == {
        b"k%d" % key: [b'{"order":%d,"twice":%d.0}' % (n, n) for n in wanted if n % 5 == key]
        for key in range(5)
    }
    assert sorted(one.timestamp - NOON_MS for one in found) == sorted(wanted)
    assert {one.headers for one in found} == {(("trace", b"%d" % n),) for n in wanted}
    pinned = json.loads((tmp_path / "state" / "output.json").read_text())
    assert pinned == {"topic": out, "sinkId": sink_name("transform", [topic], None, out)}


def test_everything_is_copied_as_it_is_by_a_star(
    spark: "SparkSession", bootstrap: str, topic: str, out: str, tmp_path: Path
) -> None:
    """Where a message was stays behind, but for its partition, which is a column of messages."""
    fill(bootstrap, topic, [{"value": None, "key": b"\xff", "partition": 1}, *orders(4)])
    spark.createDataFrame([(1,)], "mine int").createOrReplaceTempView("messages")

    run(spark, bootstrap, topic, out, checkpoint=tmp_path, sql="SELECT * FROM messages")

    assert contents(bootstrap, out) == contents(bootstrap, topic)
    assert spark.table("messages").columns == ["mine"], "a view of the user's is gone"
    spark.catalog.dropTempView("messages")


def test_values_that_do_not_fit_are_dead_letters_as_they_came(
    spark: "SparkSession", bootstrap: str, topic: str, out: str, tmp_path: Path
) -> None:
    fill(bootstrap, topic, [{"value": b"rubbish", "key": b"k", "partition": 1}, *orders(10)])
    asked = {
        "checkpoint": tmp_path / "state",
        "value_format": "json",
        "sql": "SELECT key, cast(value.order AS string) AS value FROM messages",
    }
    (tmp_path / "schema").write_text("order BIGINT NOT NULL, amount DOUBLE")
    asked["schema"] = tmp_path / "schema"

    with pytest.raises(JobFailedError, match=rf"{topic}-1, offset 0 does not fit: .*malformed"):
        run(spark, bootstrap, topic, out, **asked)
    assert contents(bootstrap, out, settled=False) == []
    with pytest.raises(JobError, match=rf"create it with `waystation topic create {topic}-dead`"):
        run(spark, bootstrap, topic, out, **asked, dead_letters=f"{topic}-dead")
    create(bootstrap, f"{topic}-dead")
    # What ended the job may be set aside afterwards: the checkpoint is the same.
    run(spark, bootstrap, topic, out, **asked, dead_letters=f"{topic}-dead")

    found = values(contents(bootstrap, out))
    assert len(found) == 10
    assert {*found} == {b"%d" % n for n in range(10)}
    (letter,) = contents(bootstrap, f"{topic}-dead")
    assert (letter.key, letter.value) == (b"k", b"rubbish")
    told = dict(letter.headers)
    assert b"malformed" in (told.pop("dead-letter.reason") or b"")
    assert told == {
        "dead-letter.topic": topic.encode(),
        "dead-letter.partition": b"1",
        "dead-letter.offset": b"0",
    }


def test_an_aggregation_is_written_whenever_it_changes(
    spark: "SparkSession", bootstrap: str, topic: str, out: str, tmp_path: Path
) -> None:
    sql = f"SELECT key, cast(count(*) AS string) AS value FROM `{topic}` GROUP BY key"
    asked = {"checkpoint": tmp_path, "sql": sql, "output_mode": "update"}
    fill(bootstrap, topic, orders(10))
    run(spark, bootstrap, topic, out, **asked)
    fill(bootstrap, topic, orders(1))
    run(spark, bootstrap, topic, out, **asked)

    found = by_key(contents(bootstrap, out))
    assert found == {b"k%d" % key: [b"2", b"3"] if key == 0 else [b"2"] for key in range(5)}
    assert not [table for table in spark.catalog.listTables() if table.isTemporary]


FUNCTIONS = """
SHOUT = "!"

def louder(value):
    return value + SHOUT

def shouted(messages):
    from pyspark.sql.functions import udf
    return messages.select("key", udf(louder)(messages.value.cast("string")).alias("value"),
                           messages.headers[0].value.cast("string").alias("topic"))

def nothing(messages):
    return None
"""


def test_a_function_of_a_file_makes_messages_for_topics_that_it_names(
    spark: "SparkSession", bootstrap: str, topic: str, out: str, tmp_path: Path
) -> None:
    """By the command, in this process: it finds the session that the tests have."""
    (tmp_path / "json.py").write_text(FUNCTIONS)
    fill(bootstrap, topic, [{"value": "a", "headers": [("to", out.encode())]}])
    words = ["--bootstrap", bootstrap, "--topics", topic, "--available-now", "--json"]
    words += ["--checkpoint", str(tmp_path / "state"), "--sink-option", "compression=zstd"]

    refused = CliRunner().invoke(command, [*words, "--function", f"{tmp_path}/json.py:nothing"])
    assert refused.exit_code == 1
    assert "nothing must return a frame" in refused.output
    done = CliRunner().invoke(command, [*words, "--function", f"{tmp_path}/json.py:shouted"])

    assert done.exit_code == 0, done.output
    assert values(contents(bootstrap, out)) == [b"a!"]


# --- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "--sql 'SELECT ...' or --function"),
        ({"sql": "SELECT 1 AS value"}, "reads no topic: select from messages"),
        ({"sql": "SELECT value, key AS kye FROM messages"}, "unknown column kye.*did you mean key"),
        ({"sql": "SELECT key FROM messages"}, "no column value, only key"),
        ({"sql": "SELECT offset + 1 AS value FROM messages"}, r"value is bigint.*cast\(value as"),
        ({"sql": "SELECT value FROM messages", "to": None}, "nobody says where the rows go"),
        ({"sql": "SELECT 1", "to": "in"}, "would read the topic in, to which it writes"),
        ({"sql": "SELECT 1", "dead_letters": "in"}, "--dead-letters is for --value-format"),
        ({"sql": "SELECT 1", "source_options": {"MinPartitions": 9}}, "minPartitions lets several"),
        ({"function": "nowhere"}, "must be package.module:name or path/to/file.py:name"),
        ({"function": "absent.module:f"}, "No module named 'absent'. Remedy: install"),
        ({"function": "/absent/file.py:f"}, "there is no file /absent/file.py"),
        ({"function": "json:absent"}, "json has no function absent"),
    ],
)
def test_a_transformation_that_makes_no_sense_is_refused_before_it_starts(
    spark: "SparkSession", tmp_path: Path, asked: dict[str, Any], said: str
) -> None:
    asked = {"bootstrap": "127.0.0.1:1", "topics": "in", "to": "out", **asked}

    with pytest.raises((JobError, BadOptionError), match=said):
        transform(spark, checkpoint=tmp_path, **asked)

    assert not [*tmp_path.iterdir()]


def test_a_checkpoint_belongs_to_one_output_and_may_not_be_lost(
    spark: "SparkSession", bootstrap: str, topic: str, out: str, tmp_path: Path
) -> None:
    asked = {"checkpoint": tmp_path / "state", "sql": "SELECT value FROM messages"}
    fill(bootstrap, topic, [{"value": b"once"}])
    with pytest.raises(JobFailedError, match=rf"topic {topic}-absent does not exist"):
        run(spark, bootstrap, topic, f"{topic}-absent", checkpoint=tmp_path, sql=asked["sql"])
    run(spark, bootstrap, topic, out, **asked)

    with pytest.raises(JobError, match=rf"state belongs to the output {out}, not to other"):
        run(spark, bootstrap, topic, "other", **asked)
    with pytest.raises(JobError, match=r"has written as the sink transform-.*, not as mine"):
        run(spark, bootstrap, topic, out, **asked, sink_id="mine")
    with pytest.raises(JobFailedError, match=r"it belongs to query .* choose a new sinkId"):
        run(spark, bootstrap, topic, out, **{**asked, "checkpoint": tmp_path / "fresh"})
    (tmp_path / "state" / "output.json").unlink()
    with pytest.raises(JobError, match="state holds the progress of another job"):
        run(spark, bootstrap, topic, out, **asked)

    assert values(contents(bootstrap, out)) == [b"once"]
