"""Batch reads by Spark itself: rows, columns, and errors as a user sees them."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.topics import create, fill, trim
from waystation.spark.columns import COLUMNS

pytestmark = pytest.mark.heavy(15)


def load(spark: SparkSession, bootstrap: str, topic: str, **more: str) -> DataFrame:
    options = {"bootstrap.servers": bootstrap, "subscribe": topic, **more}
    return spark.read.format("waystation").options(**options).load()


def refused(action: Callable[[], Any]) -> str:
    """What a user sees of an error."""
    with pytest.raises(PySparkException) as found:
        action()
    return str(found.value)


def test_spark_finds_the_source_by_its_name(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create(bootstrap, topic, 2)
    fill(bootstrap, topic, {0: 300, 1: 200}, timestamp=1_700_000_000_000)

    frame = load(spark, bootstrap, topic, includeHeaders="true")

    assert frame.columns == [*COLUMNS.fieldNames(), "headers"]
    rows = frame.orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == [
        *((0, offset) for offset in range(300)),
        *((1, offset) for offset in range(200)),
    ]
    last = rows[299]
    assert (bytes(last.key), bytes(last.value)) == (b"key-299", b"value-299")
    assert (last.topic, last.timestampType) == (topic, 0)
    assert last.timestamp.astimezone(UTC) == datetime.fromtimestamp(1_700_000_000.299, UTC)
    assert [(one.key, bytes(one.value)) for one in last.headers] == [("number", b"299")]

    chosen = load(spark, bootstrap, topic, where="headers.number = '7' AND partition = 1")

    assert [(row.partition, row.offset) for row in chosen.collect()] == [(1, 7)]


def test_a_narrower_schema_reads_less(spark: SparkSession, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 100}, compression="lz4")

    reader = spark.read.format("waystation").option("bootstrap.servers", bootstrap)
    frame = reader.option("subscribe", topic).schema("offset BIGINT, value BINARY").load()

    assert frame.columns == ["offset", "value"]
    assert frame.count() == 100
    assert frame.selectExpr("max(offset)", "max(length(value))").first() == (99, 8)


def test_an_empty_topic_is_an_empty_frame(spark: SparkSession, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 3)

    assert load(spark, bootstrap, topic).count() == 0


def test_a_read_is_split_among_tasks(spark: SparkSession, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 1_000})

    frame = load(spark, bootstrap, topic, minPartitions="4")

    assert frame.rdd.getNumPartitions() == 4
    assert frame.selectExpr("count(distinct offset)", "count(*)").first() == (1_000, 1_000)


def test_offsets_that_are_gone_are_an_error_or_passed_over(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 10})
    trim(bootstrap, topic, 4)
    first = json.dumps({topic: {"0": 0}})

    said = refused(lambda: load(spark, bootstrap, topic, startingOffsets=first).count())
    found = load(spark, bootstrap, topic, startingOffsets=first, failOnDataLoss="false")

    assert f"DataLossError: partition {topic}-0: startingOffsets is 0, but it holds [4, 10)" in said
    assert "failOnDataLoss" in said
    assert "Traceback" not in said
    assert found.count() == 6


def test_offsets_that_go_while_they_are_read_are_an_error(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    """A frame keeps its plan: the second time only the task can notice."""
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 10})
    frame = load(spark, bootstrap, topic)
    assert len(frame.collect()) == 10
    trim(bootstrap, topic, 4)

    said = refused(frame.collect)

    assert f"DataLossError: partition {topic}-0" in said
    assert "failOnDataLoss" in said
    assert "Traceback" not in said


def test_mistakes_are_told_in_a_sentence(spark: SparkSession, bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)

    assert "BadOptionError: unknown option startingoffset; did you mean startingOffsets" in refused(
        lambda: load(spark, bootstrap, topic, startingOffset="earliest")
    )
    assert "BadOptionError: startingOffsets is '{', no JSON" in refused(
        lambda: load(spark, bootstrap, topic, startingOffsets="{")
    )
    assert "UnknownTopicError: subscribe: topic nowhere-1 does not exist" in refused(
        lambda: load(spark, bootstrap, "nowhere-1").count()
    )
    said = refused(lambda: load(spark, "127.0.0.1:1", topic).count())
    assert "BadOptionError: bootstrap.servers: no broker answers (127.0.0.1:1" in said
    assert "Traceback" not in said


def test_a_schema_that_a_topic_does_not_have_is_refused(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create(bootstrap, topic)
    reader = spark.read.format("waystation").option("bootstrap.servers", bootstrap)

    said = refused(lambda: reader.option("subscribe", topic).schema("value STRING").load().count())

    assert "BadOptionError: column value of the schema is string, must be binary" in said
