"""Frames written by Spark itself: rows as they were, and errors as a user sees them."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.sink_queries import KEYS, check_once, copy, fill, held, rows, start
from tests.spark.topics import create

pytestmark = pytest.mark.heavy(30)


def write(frame: DataFrame, bootstrap: str, topic: str = "", **more: str) -> None:
    options = {"bootstrap.servers": bootstrap, **({"topic": topic} if topic else {}), **more}
    frame.write.format("waystation").mode("append").options(**options).save()


def refused(action: Callable[[], Any]) -> str:
    """What a user sees of an error."""
    with pytest.raises(PySparkException) as found:
        action()
    return str(found.value)


def test_a_record_is_written_as_its_row_says(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create(bootstrap, f"{topic}-a", 3)
    create(bootstrap, f"{topic}-b")
    frame = spark.sql(
        f"""
        select * from values
            ('{topic}-a', 2, 'k', 'text', timestamp_millis(1700000000123),
             array(struct('h' as key, binary('1') as value), struct('h' as key, null as value))),
            ('{topic}-a', 1, null, null, timestamp_millis(1700000000456), array()),
            ('{topic}-b', null, '', '', null, null)
        as t(topic, partition, key, value, timestamp, headers)
        """
    )
    began = datetime.now(UTC).timestamp() * 1_000

    write(frame.coalesce(1), bootstrap)

    first, second = sorted(
        held(bootstrap, f"{topic}-a"), key=lambda one: one.offset + one.partition
    )
    assert (first.partition, first.key, first.value) == (1, None, None)
    assert (first.timestamp, first.headers) == (1_700_000_000_456, ())
    assert (second.partition, second.key, second.value) == (2, b"k", b"text")
    assert (second.timestamp, second.headers) == (1_700_000_000_123, (("h", b"1"), ("h", None)))
    (third,) = held(bootstrap, f"{topic}-b")
    assert (third.key, third.value, third.headers) == (b"", b"", ())
    assert third.timestamp >= began - 1


def test_rows_with_a_key_go_where_every_client_sends_them(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create(bootstrap, f"{topic}-ours", 5)
    create(bootstrap, f"{topic}-theirs", 5)
    fill(bootstrap, f"{topic}-theirs", 0, 200)
    theirs = {one.key: one.partition for one in held(bootstrap, f"{topic}-theirs")}

    frame = spark.range(200).selectExpr(
        f"concat('key-', id % {KEYS}) as key", "string(id) as value"
    )
    write(frame, bootstrap, f"{topic}-ours", compression="lz4")

    ours = held(bootstrap, f"{topic}-ours")
    assert {one.key: one.partition for one in ours} == theirs
    assert sorted(int(one.value or b"") for one in ours) == [*range(200)]


def test_a_stream_writes_each_row_once_and_goes_on_where_it_was(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic, 2)
    create(bootstrap, f"{topic}-to", 3)

    fill(bootstrap, topic, 0, 400)
    copy(spark, bootstrap, topic, f"{topic}-to", tmp_path)
    fill(bootstrap, topic, 400, 600)
    copy(spark, bootstrap, topic, f"{topic}-to", tmp_path)

    check_once(bootstrap, f"{topic}-to", 600)


def test_mistakes_are_told_in_a_sentence(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic)
    frame = spark.range(3).selectExpr("string(id) as value")

    said = refused(lambda: write(spark.range(3).selectExpr("id as value"), bootstrap, topic))
    assert "BadOptionError: column value is bigint, must be binary or string: write cast" in said
    assert "Traceback" not in said
    said = refused(lambda: write(frame, bootstrap, f"{topic}-nowhere"))
    assert f"topic {topic}-nowhere does not exist: create it with `waystation topic create" in said
    assert "Traceback" not in said
    assert "unknown option topik; did you mean topic?" in refused(
        lambda: write(frame, bootstrap, topik="a")
    )
    overwriting = frame.write.format("waystation").mode("overwrite")
    assert 'use mode("append")' in refused(
        overwriting.options(**{"bootstrap.servers": bootstrap, "topic": topic}).save
    )
    assert "no broker answers (127.0.0.1:1" in refused(lambda: write(frame, "127.0.0.1:1", topic))
    assert held(bootstrap, topic) == []


def test_a_stream_whose_frame_is_wrong_does_not_start(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic)
    frame = rows(spark, bootstrap, topic).selectExpr("length(value) as value")

    with pytest.raises(StreamingQueryException) as ended:
        start(frame, bootstrap, topic, tmp_path).awaitTermination(80)

    assert "column value is int, must be binary or string" in str(ended.value)
    assert "Traceback" not in str(ended.value)
