"""Topics to a lake table: every offset once, through restarts, lost checkpoints and mistakes."""

import asyncio
import json
import shutil
from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipelines.test_values import AVRO_VALUE, AVSC, written_in_avro
from waystation import Admin, Producer
from waystation.pipelines.archive import archive, default_group, quarantine_of
from waystation.pipelines.archive_start import archived_until
from waystation.pipelines.failures import JobError, JobFailedError
from waystation.pipelines.job import follow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.heavy(60)

NOON_MS = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1_000)
DAY_MS = 86_400_000


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return str(tmp_path / "lake" / "orders")


def fill(bootstrap: str, topic: str, values: Iterable[Any], **more: Any) -> None:
    """Append, two partitions taking turns."""

    async def work() -> None:
        async with Admin(bootstrap) as admin:
            if topic not in {one.name for one in await admin.list_topics()}:
                await admin.create_topic(topic, 2)
        async with Producer(bootstrap) as producer:
            for number, value in enumerate(values):
                producer.submit(topic, value, key=f"k{number}", partition=number % 2, **more)

    asyncio.run(work())


def run(spark: "SparkSession", bootstrap: str, topic: str, lake: str, **more: Any) -> None:
    """Archive all there is."""
    query = archive(spark, bootstrap=bootstrap, topics=topic, lake=lake, available_now=True, **more)
    follow(query, json_output=True)


def table(spark: "SparkSession", path: str) -> "DataFrame":
    return spark.read.format("waystation.table").load(path)


def offsets(spark: "SparkSession", path: str) -> list[tuple[int, int]]:
    """All places in the table, in order, the doubled ones twice."""
    rows = table(spark, path).select("partition", "offset").collect()
    return sorted((row["partition"], row["offset"]) for row in rows)


def places(*counts: int) -> list[tuple[int, int]]:
    """The offsets of partitions with so many records."""
    return [(number, at) for number, count in enumerate(counts) for at in range(count)]


def committed(bootstrap: str, group: str) -> dict[int, int]:
    async def ask() -> dict[int, int]:
        async with Admin(bootstrap) as admin:
            found = await admin.group_offsets(group)
        return {where.partition: at.offset for where, at in found.items()}

    return asyncio.run(ask())


# --- what is in the table ---------------------------------------------------------------------


def test_a_topic_is_archived_whole_and_then_what_came_meanwhile(
    spark: "SparkSession", bootstrap: str, topic: str, lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(bootstrap, topic, [b"a", None, b"c"], timestamp=NOON_MS, headers=[("h", b"x")])

    run(spark, bootstrap, topic, lake)

    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["batch"], one["rows"], one["lag"]) for one in told] == [(0, 3, 0)]
    found = table(spark, lake)
    assert found.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>,"
        "date:date>"
    )
    rows = found.orderBy("partition", "offset").collect()
    assert [(bytes(row["key"]), row["value"]) for row in rows] == [
        (b"k0", b"a"),
        (b"k2", b"c"),
        (b"k1", None),
    ]
    assert {row["topic"] for row in rows} == {topic}
    assert {row["date"] for row in rows} == {date(2026, 1, 31)}
    assert rows[0]["headers"][0]["key"] == "h"
    assert Path(lake, f"topic={topic}", "date=2026-01-31").is_dir()

    # As if the driver had died between the table's commit and Spark's: the batch is repeated.
    for left in Path(f"{lake}-checkpoint", "commits").iterdir():
        left.unlink()
    fill(bootstrap, topic, [b"d", b"e", b"f", b"g"], timestamp=NOON_MS + DAY_MS)
    run(spark, bootstrap, topic, lake)

    assert offsets(spark, lake) == places(4, 3)
    assert committed(bootstrap, default_group(lake)) == {0: 4, 1: 3}


def test_a_day_is_utcs_whatever_the_session_thinks(
    spark: "SparkSession", bootstrap: str, topic: str, lake: str
) -> None:
    midnight_ms = NOON_MS - NOON_MS % DAY_MS
    fill(bootstrap, topic, [b"last"], timestamp=midnight_ms - 1)
    fill(bootstrap, topic, [b"first"], timestamp=midnight_ms)
    fill(bootstrap, topic, [b"old"], timestamp=0)
    elsewhere = spark.newSession()
    elsewhere.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")

    run(elsewhere, bootstrap, topic, lake)

    days = table(spark, lake).selectExpr("cast(value as string) v", "date").collect()
    assert {row["v"]: row["date"] for row in days} == {
        "last": date(2026, 1, 30),
        "first": date(2026, 1, 31),
        "old": date(1970, 1, 1),
    }


# --- going on ---------------------------------------------------------------------------------


def test_an_archive_whose_checkpoint_is_lost_goes_on_where_the_table_ends(
    spark: "SparkSession",
    bootstrap: str,
    topic: str,
    lake: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A second archive with a checkpoint of its own is the same: other topics, other batches."""
    fill(bootstrap, topic, [b"x"] * 10)
    run(spark, bootstrap, topic, lake)
    shutil.rmtree(f"{lake}-checkpoint")
    fill(bootstrap, topic, [b"y"] * 10)
    fill(bootstrap, f"{topic}-2", [b"z"] * 4)

    query = archive(
        spark,
        bootstrap=bootstrap,
        topics=(topic, f"{topic}-2"),
        lake=lake,
        checkpoint=tmp_path / "second",
        available_now=True,
    )
    follow(query, json_output=False)

    said = capsys.readouterr().err
    assert "batch 0: 14 rows in " in said
    assert "ended: 14 rows in 1 batch, " in said
    places = table(spark, lake).groupBy("topic", "partition", "offset").count().collect()
    assert {row["count"] for row in places} == {1}
    assert sorted((row["topic"], row["offset"]) for row in places) == sorted(
        [(topic, at) for at in range(10)] * 2 + [(f"{topic}-2", at) for at in range(2)] * 2
    )


def test_a_lake_ends_before_the_first_record_that_is_missing_from_its_quarantine_too(
    spark: "SparkSession", tmp_path: Path
) -> None:
    def write(name: str, *at: tuple[int, int]) -> None:
        frame = spark.createDataFrame(
            [("t", partition, offset) for partition, offset in at],
            "topic string, partition int, offset bigint",
        )
        frame.write.format("waystation.table").mode("append").save(str(tmp_path / name))

    write("lake", (0, 3), (0, 5), (1, 8), (2, 1))
    write("lake-quarantine", (0, 4), (0, 6), (0, 7), (0, 7), (0, 9), (1, 10), (3, 0))

    found = archived_until(spark, str(tmp_path / "lake"), {})

    assert found == {"t": {"0": 8, "1": 9, "2": 2}}


def test_an_archive_begins_where_it_was_first_told_to(
    spark: "SparkSession", bootstrap: str, topic: str, lake: str
) -> None:
    """Its end is the first end there was, though the first start came to nothing."""
    fill(bootstrap, topic, [b"before"] * 4)
    Path(lake).parent.mkdir()
    Path(lake).touch()
    latest = {"startingOffsets": "latest"}
    query = archive(
        spark, bootstrap=bootstrap, topics=topic, lake=lake, every_s=0, source_options=latest
    )
    fill(bootstrap, topic, [b"after"] * 4)
    with pytest.raises(JobFailedError, match="lake/orders"):
        follow(query, json_output=True)
    Path(lake).unlink()

    run(spark, bootstrap, topic, lake, source_options=latest)

    assert offsets(spark, lake) == [(0, 2), (0, 3), (1, 2), (1, 3)]


# --- mistakes ---------------------------------------------------------------------------------


def test_a_checkpoint_belongs_to_one_lake_and_a_lake_has_one_schema(
    spark: "SparkSession", bootstrap: str, topic: str, lake: str
) -> None:
    fill(bootstrap, topic, [b"x"])
    run(spark, bootstrap, topic, lake)

    with pytest.raises(JobError, match=r"-checkpoint belongs to the lake .*orders, not to .*other"):
        run(spark, bootstrap, topic, f"{lake}-other", checkpoint=f"{lake}-checkpoint")

    fill(bootstrap, topic, [b"y"])
    with pytest.raises(JobFailedError, match=r"lake/orders: .*value"):
        run(spark, bootstrap, topic, lake, value_format="text")
    assert offsets(spark, lake) == [(0, 0)]

    shutil.rmtree(lake)
    with pytest.raises(JobError, match="where there is no table any more"):
        run(spark, bootstrap, topic, lake)


def test_a_checkpoint_of_another_job_is_not_taken_over(
    spark: "SparkSession", bootstrap: str, lake: str, tmp_path: Path
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "metadata").write_text('{"id": "x"}')

    with pytest.raises(JobError, match="taken holds the progress of another job"):
        run(spark, bootstrap, "orders", lake, checkpoint=tmp_path / "taken")

    assert not Path(lake).exists()


def test_a_topic_that_does_not_exist_is_named_and_nothing_is_written(
    spark: "SparkSession", bootstrap: str, lake: str
) -> None:
    with pytest.raises(JobFailedError, match="topic absent does not exist"):
        run(spark, bootstrap, "absent", lake)

    assert not Path(lake).exists()


def test_a_broker_that_is_not_there_is_named_and_nothing_is_written(
    spark: "SparkSession", lake: str
) -> None:
    with pytest.raises(JobFailedError, match=r"127\.0\.0\.1:1: connection refused"):
        run(spark, "127.0.0.1:1", "orders", lake)

    assert not Path(lake).exists()


def test_an_option_that_the_source_does_not_have_is_named(
    spark: "SparkSession", bootstrap: str, lake: str
) -> None:
    with pytest.raises(Exception, match="maxOffsetsPerTrigger"):
        run(spark, bootstrap, "orders", lake, source_options={"maxOffsetPerTrigger": 5})


# --- typed values -----------------------------------------------------------------------------


def test_values_that_do_not_fit_are_set_aside_and_the_job_goes_on(
    spark: "SparkSession", bootstrap: str, topic: str, lake: str
) -> None:
    values = ['{"id": 1}', '{"id": 2, "tags": ["a"]}', "rubbish", None, '{"id": "4"}', '{"id": 5}']
    fill(bootstrap, topic, values, timestamp=NOON_MS)

    run(spark, bootstrap, topic, lake, value_format="json")

    rows = table(spark, lake).select("partition", "offset", "value.*").collect()
    assert sorted(tuple(row) for row in rows) == [
        (0, 0, 1, None),
        (1, 0, 2, ["a"]),
        (1, 1, None, None),
        (1, 2, 5, None),
    ]
    aside = table(spark, quarantine_of(lake)).orderBy("offset").collect()
    assert [(row["partition"], row["offset"], bytes(row["value"])) for row in aside] == [
        (0, 1, b"rubbish"),
        (0, 2, b'{"id": "4"}'),
    ]
    assert "malformed" in aside[0]["reason"]
    assert "got `str` - at `$.id`" in aside[1]["reason"]

    pinned = json.loads(Path(f"{lake}-checkpoint", "schema.json").read_text())
    assert [one["name"] for one in pinned["fields"]] == ["id", "tags"]

    # What came later does not change the types; losing Spark's part of the progress changes
    # neither, and what was set aside at the end of a partition is not set aside again.
    fill(bootstrap, topic, ['{"id": 7, "colour": "red"}'] * 2)
    Path(f"{lake}-checkpoint", "schema.json").rename(Path(f"{lake}-schema.json"))
    shutil.rmtree(f"{lake}-checkpoint")
    Path(f"{lake}-checkpoint").mkdir()
    Path(f"{lake}-schema.json").rename(Path(f"{lake}-checkpoint", "schema.json"))
    run(spark, bootstrap, topic, lake, value_format="json")

    assert offsets(spark, lake) == [(0, 0), (1, 0), (1, 1), (1, 2)]
    assert offsets(spark, quarantine_of(lake)) == [(0, 1), (0, 2), (0, 3), (1, 3)]


def test_a_schema_in_words_gives_values_their_types(
    spark: "SparkSession", bootstrap: str, topic: str, lake: str, tmp_path: Path
) -> None:
    schema = tmp_path / "order.ddl"
    schema.write_text("id BIGINT NOT NULL, at TIMESTAMP, inner STRUCT<x: ARRAY<DECIMAL(6,2)>>")
    fill(
        bootstrap, topic, ['{"id": 1, "at": "2026-01-31T12:00:00Z", "inner": {"x": [1.25]}}', "{}"]
    )

    run(spark, bootstrap, topic, lake, value_format="json", schema=schema)

    (row,) = (
        table(spark, lake).selectExpr("value.id", "value.at", "value.inner.x[0] as x").collect()
    )
    assert (row["id"], row["at"], str(row["x"])) == (1, datetime(2026, 1, 31, 12), "1.25")
    assert offsets(spark, quarantine_of(lake)) == [(1, 0)]


def test_avro_values_come_back_from_the_table_as_they_were(
    spark: "SparkSession", bootstrap: str, topic: str, lake: str, tmp_path: Path
) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_bytes(AVSC)
    fill(bootstrap, topic, [written_in_avro(AVRO_VALUE), b"\xff"])

    run(spark, bootstrap, topic, lake, value_format="avro", schema=schema)

    (row,) = table(spark, lake).select("value.*").collect()
    assert row.asDict() == {**AVRO_VALUE, "at": AVRO_VALUE["at"].replace(tzinfo=None)}
    assert offsets(spark, quarantine_of(lake)) == [(1, 0)]


def test_there_is_no_schema_to_infer_in_an_empty_topic(
    spark: "SparkSession", bootstrap: str, topic: str, lake: str
) -> None:
    fill(bootstrap, topic, [])

    with pytest.raises(JobError, match=r"no JSON object among the first records.*--schema FILE"):
        run(spark, bootstrap, topic, lake, value_format="json")
