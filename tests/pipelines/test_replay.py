"""Messages of the past are sent once more: each once, in order, and saying where they are from."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from click.testing import CliRunner

from tests.pipelines.topic_contents import Read, by_key, contents, create, fill
from tests.support.soak import SOAKING
from waystation.pipelines.archive import archive
from waystation.pipelines.failures import JobError
from waystation.pipelines.job import follow
from waystation.pipelines.progress import BatchReport, Interrupts
from waystation.pipelines.replay import Selection, command, count, replay
from waystation.pipelines.replay_rows import copies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.heavy(25)

SOURCE = "replayed-orders"
RECORDS = 300
HOUR_MS = 3_600_000
START_MS = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1_000)


class Past(NamedTuple):
    """A topic with messages of three days, and a lake that has them too."""

    bootstrap: str
    lake: str

    def selection(self, **more: Any) -> Selection:
        return Selection(bootstrap=self.bootstrap, **more)


def original(number: int) -> dict[str, Any]:
    """A quarter of an hour after the one before; keys keep to a partition."""
    value = json.dumps({"order": number, "amount": number % 10}).encode()
    return {
        "value": None if number == 7 else value,
        "key": f"k{number % 6}".encode(),
        "partition": number % 2,
        "timestamp": START_MS + number * HOUR_MS // 4,
        "headers": [("shop", b"north")] if number % 3 else [],
    }


@pytest.fixture(scope="module")
def past(spark: "SparkSession", bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Past:
    create(bootstrap, SOURCE)
    fill(bootstrap, SOURCE, map(original, range(RECORDS)))
    lake = str(tmp_path_factory.mktemp("past") / "lake")
    query = archive(
        spark,
        bootstrap=bootstrap,
        topics=SOURCE,
        lake=lake,
        available_now=True,
        source_options={"maxOffsetsPerTrigger": RECORDS // 2},
    )
    follow(query, json_output=True)
    return Past(bootstrap, lake)


@pytest.fixture
def to(bootstrap: str, topic: str) -> str:
    """An empty topic for what is sent."""
    create(bootstrap, topic, partitions=3)
    return topic


def sent(past: Past, to: str) -> list[Read]:
    return contents(past.bootstrap, to)


def number_of(one: Read) -> int:
    """Which of the originals a message is, by what its headers say."""
    told = dict(one.headers)
    assert told["replay.topic"] == SOURCE.encode()
    return int(told["replay.offset"] or 0) * 2 + int(told["replay.partition"] or 0)


def check(past: Past, to: str, wanted: list[int], run: str) -> None:
    """These of the originals are there once, as they were, each key in its order."""
    found = sent(past, to)
    assert sorted(map(number_of, found)) == wanted
    for one in found:
        was = original(number_of(one))
        assert (one.key, one.value, one.timestamp) == (was["key"], was["value"], was["timestamp"])
        assert [*one.headers[: len(was["headers"])]] == was["headers"]
        told = dict(one.headers)
        assert told["replay.timestamp"] == str(was["timestamp"]).encode()
        assert told["replay.run"] == run.encode()
    for key, values in by_key(found).items():
        assert values == [
            original(number)["value"] for number in wanted if original(number)["key"] == key
        ]


def test_a_lake_is_sent_in_chunks_and_each_message_once(
    spark: "SparkSession", past: Past, to: str, tmp_path: Path
) -> None:
    told: list[BatchReport] = []

    done = replay(
        spark,
        past.selection(lake=past.lake),
        to=to,
        checkpoint=tmp_path / "c",
        chunk_offsets=160,
        tell=told.append,
    )

    assert (done.messages, done.ended) == (RECORDS, True)
    assert [(one.batch, one.rows, one.lag) for one in told] == [(0, 160, 140), (1, 140, 0)]
    check(past, to, [*range(RECORDS)], done.run)


def test_a_day_of_a_lake_by_a_condition(
    spark: "SparkSession", past: Past, to: str, tmp_path: Path
) -> None:
    """What a dry run counts is what is sent, and no other."""
    second_day = past.selection(
        lake=past.lake,
        since="2026-03-02",
        until="2026-03-03",
        where="get_json_object(cast(value as string), '$.amount') < 3",
    )
    wanted = [number for number in range(96, 192) if number % 10 < 3]

    assert sum(one.messages for one in count(spark, second_day)) == len(wanted)
    done = replay(spark, second_day, to=to, checkpoint=tmp_path / "c")

    check(past, to, wanted, done.run)


def test_offsets_are_those_of_every_partition_or_of_each(spark: "SparkSession", past: Past) -> None:
    offsets = past.selection(
        topics=SOURCE, since="100", until=f'{{"{SOURCE}": {{"0": 110, "1": 999}}}}'
    )
    with pytest.raises(JobError, match="--until"):
        count(spark, past.selection(topics=SOURCE, until=f'{{"{SOURCE}": {{"0": 110}}}}'))
    found = [(one.first_offset, one.last_offset) for one in count(spark, offsets)]
    assert found == [(100, 109), (100, 149)]


def test_a_replay_that_stopped_goes_on_and_one_that_has_ended_does_nothing(
    spark: "SparkSession", past: Past, to: str, tmp_path: Path
) -> None:
    since = datetime.fromtimestamp((START_MS + 50 * HOUR_MS) / 1_000, UTC).isoformat()
    selection = past.selection(topics=SOURCE, since=since)
    asked: dict[str, Any] = {"to": to, "checkpoint": tmp_path / "c"}
    stop = Interrupts()

    first = replay(
        spark,
        selection,
        **asked,
        chunk_offsets=40,
        interrupted=stop,
        tell=lambda _: stop.note(),
    )
    assert (first.messages, first.ended) == (40, False)
    rest = replay(spark, selection, **asked)
    assert (rest.run, rest.messages, rest.ended) == (first.run, 100, True)
    check(past, to, [*range(200, RECORDS)], first.run)

    # As if it had died when the last chunk was in the topic, but not noted yet.
    (tmp_path / "c" / "replay-ended.json").unlink()
    assert replay(spark, selection, **asked) == rest
    assert replay(spark, selection, **asked) == rest
    check(past, to, [*range(200, RECORDS)], first.run)

    with pytest.raises(JobError, match=r"belongs to a replay with --where left away, not 'true'"):
        replay(spark, past.selection(topics=SOURCE, since=since, where="true"), **asked)


def test_a_rate_is_kept(spark: "SparkSession", past: Past, to: str, tmp_path: Path) -> None:
    told: list[BatchReport] = []

    began_s = time.monotonic()
    replay(
        spark,
        past.selection(topics=SOURCE, until="30"),
        to=to,
        checkpoint=tmp_path / "c",
        rate=20,
        chunk_offsets=30,
        tell=told.append,
    )

    assert [one.rows for one in told] == [30, 30]
    assert time.monotonic() - began_s >= 1.5
    assert len(sent(past, to)) == 60


def test_values_with_types_become_json(spark: "SparkSession") -> None:
    place = "'orders' topic, 3 partition, 14L offset, timestamp_millis(1500) timestamp"
    values = spark.sql(f"SELECT 'k' key, {place}, struct(1 AS order, 2.5D AS amount) value")

    (row,) = copies(values, kind="replay", run="r", to="{topic}-2", keep_partitions=True).collect()

    assert (row.key, row.value, row.topic) == ("k", '{"order":1,"amount":2.5}', "orders-2")
    assert (row.partition, row.timestamp.microsecond) == (3, 500_000)
    assert {one.key: bytes(one.value) for one in row.headers} == {
        "replay.topic": b"orders",
        "replay.partition": b"3",
        "replay.offset": b"14",
        "replay.timestamp": b"1500",
        "replay.run": b"r",
    }


@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def check_other_tables_with_types(
    spark: "SparkSession", past: Past, tmp_path: Path, table_format: str
) -> None:
    lake, to = str(tmp_path / "typed"), f"{SOURCE}-{table_format}"
    create(past.bootstrap, to)
    archiving = archive(
        spark,
        bootstrap=past.bootstrap,
        topics=SOURCE,
        lake=lake,
        value_format="json",
        table_format=table_format,
        available_now=True,
    )
    follow(archiving, json_output=True)

    selection = past.selection(lake=lake, topics=SOURCE, where="value.amount = 9")
    replay(
        spark,
        selection,
        to=f"{{topic}}-{table_format}",
        checkpoint=tmp_path / "c",
        keep_partitions=True,
    )

    found = sent(past, to)
    wanted = [number for number in range(RECORDS) if number % 10 == 9]
    assert sorted(map(number_of, found)) == wanted
    for one in found:
        assert json.loads(one.value or b"") == json.loads(original(number_of(one))["value"])
        assert one.partition == number_of(one) % 2


if SOAKING:  # one more table to be filled for each
    test_tables_of_other_kinds_with_types = check_other_tables_with_types


# --- mistakes ---------------------------------------------------------------------------------


def run(*arguments: str) -> Any:
    """The command, in this process: it finds the session that the tests have."""
    return CliRunner().invoke(command, [*arguments])


def test_a_dry_run_sends_nothing_and_needs_no_checkpoint(
    spark: "SparkSession", past: Past, to: str
) -> None:
    told = run("--bootstrap", past.bootstrap, "--topics", SOURCE, "--dry-run", "--json")

    assert told.exit_code == 0, told.output
    assert json.loads(told.output)["messages"] == RECORDS
    assert sent(past, to) == []


def test_mistakes_are_named_and_leave_nothing_behind(
    spark: "SparkSession", past: Past, to: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "c"
    common = ("--bootstrap", past.bootstrap, "--checkpoint", str(checkpoint))
    wrong = {
        ("--to", to): "--lake DIR, or --topics",
        ("--to", to, "--topics", SOURCE, "--where", "colour = 1"): "colour",
        ("--to", to, "--topics", SOURCE, "--from", "noon"): "--from is 'noon'",
        ("--to", to, "--topics", "nowhere"): "nowhere",
        ("--to", "nobody", "--topics", SOURCE): "waystation topic create nobody",
        ("--to", to, "--lake", str(tmp_path / "none")): "there is no table here",
        ("--to", to, "--lake", past.lake, "--version", "77"): "77",
        ("--to", to, "--lake", past.lake, "--topic-pattern", "a.*"): "--topic-pattern is for",
        ("--to", to, "--topics", SOURCE, "--option", "startingOffsets=latest"): "--from and",
        ("--topics", SOURCE): "--to TOPIC and --checkpoint DIR",
    }
    for words, named in wrong.items():
        told = run(*common, *words)
        assert told.exit_code != 0
        assert named in told.output, (words, told.output)
    assert not checkpoint.exists()
    assert sent(past, to) == []
