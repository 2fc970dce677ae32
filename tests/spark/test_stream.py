"""Streams run by Spark itself: everything once, limits kept, progress shown, restarts survived."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.spark.topics import ask, create, delete, fill
from waystation.spark.progress import publish_progress
from waystation.testing.process import BrokerProcess

pytestmark = pytest.mark.heavy(40)

_WITHIN_S = 80.0  # for a machine that does much else


@pytest.fixture
def rows(spark: SparkSession, topic: str) -> Iterator[Callable[[], list[tuple[int, int]]]]:
    """What the memory sink of the test holds: partitions and offsets, in order."""
    yield lambda: [tuple(row) for row in spark.sql(f"select * from {_table(topic)}").collect()]
    for query in spark.streams.active:
        query.stop()
    spark.catalog.dropTempView(_table(topic))


def _table(topic: str) -> str:
    return topic.replace("-", "_").lower()


def stream(spark: SparkSession, bootstrap: str, topic: str, **more: str) -> DataFrame:
    options = {"startingOffsets": "earliest", "subscribe": topic, **more}
    reader = spark.readStream.format("waystation").option("bootstrap.servers", bootstrap)
    return reader.options(**options).schema("partition INT, offset BIGINT").load()


def run(frame: DataFrame, topic: str, checkpoint: Path, **trigger: object) -> StreamingQuery:
    writer = frame.writeStream.format("memory").queryName(_table(topic))
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()  # type: ignore[arg-type]


def run_out(frame: DataFrame, topic: str, checkpoint: Path) -> StreamingQuery:
    query = run(frame, topic, checkpoint, availableNow=True)
    assert query.awaitTermination(int(_WITHIN_S))
    return query


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def committed(bootstrap: str, group: str) -> dict[int, int]:
    found = ask(bootstrap, lambda admin: admin.group_offsets(group))
    return {where.partition: one.offset for where, one in found.items()}


def noop(frame: DataFrame, checkpoint: Path, **trigger: object) -> StreamingQuery:
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start()  # type: ignore[arg-type]


def test_available_now_reads_everything_once_in_limited_batches(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    tmp_path: Path,
    rows: Callable[[], list[tuple[int, int]]],
) -> None:
    create(bootstrap, topic, 2)
    fill(bootstrap, topic, {0: 60, 1: 40})
    frame = stream(spark, bootstrap, topic, maxOffsetsPerTrigger="40", groupId=f"{topic}-g")

    query = run_out(frame, topic, tmp_path)

    assert sorted(rows()) == [*((0, at) for at in range(60)), *((1, at) for at in range(40))]
    batches = [one for one in query.recentProgress if one["numInputRows"]]
    assert [one["numInputRows"] for one in batches] == [40, 40, 20]
    end = json.loads(batches[-1]["sources"][0]["endOffset"])
    assert (
        end == json.loads(batches[-1]["sources"][0]["latestOffset"]) == {topic: {"0": 60, "1": 40}}
    )
    # A listener of other tests may still be publishing what this stream has said before.
    until(lambda: committed(bootstrap, f"{topic}-g") == {0: 60, 1: 40})


def test_a_stream_goes_on_where_its_checkpoint_is(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 10})
    counted: list[tuple[int, int, int]] = []

    def count(frame: DataFrame, batch: int) -> None:
        low, high, rows = frame.selectExpr("min(offset)", "max(offset)", "count(*)").first()
        counted.append((low, high, rows))

    def once() -> None:
        writer = stream(spark, bootstrap, topic).writeStream.foreachBatch(count)
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        assert writer.start().awaitTermination(int(_WITHIN_S))

    once()
    ask(bootstrap, lambda admin: admin.create_partitions(topic, 2))
    fill(bootstrap, topic, {0: 5, 1: 15})
    once()

    assert counted == [(0, 9, 10), (0, 14, 20)]


def test_a_stream_follows_its_topic_and_shows_its_progress_at_once(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    tmp_path: Path,
    rows: Callable[[], list[tuple[int, int]]],
) -> None:
    """With an hour between triggers only the listener can have published it."""
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 10})
    # The first question about groups takes a new broker longer than a listener would wait.
    assert committed(bootstrap, f"{topic}-g") == {}
    listener = publish_progress(spark)
    assert publish_progress(spark) is listener
    frame = stream(spark, bootstrap, topic, groupId=f"{topic}-g")
    query = run(frame, topic, tmp_path, processingTime="1 hour")

    until(lambda: committed(bootstrap, f"{topic}-g") == {0: 10})
    assert rows() == [(0, at) for at in range(10)]
    query.stop()
    spark.streams.removeListener(listener)


def test_a_broker_that_restarts_does_not_end_a_stream(
    spark: SparkSession, topic: str, tmp_path: Path, rows: Callable[[], list[tuple[int, int]]]
) -> None:
    with BrokerProcess(tmp_path / "data").start() as broker:
        create(broker.bootstrap, topic)
        fill(broker.bootstrap, topic, {0: 100})
        query = run(stream(spark, broker.bootstrap, topic), topic, tmp_path / "checkpoint")
        until(lambda: len(rows()) == 100)
        broker.kill()
        broker.start()
        fill(broker.bootstrap, topic, {0: 50})
        until(lambda: len(rows()) == 150)
        query.stop()

        assert rows() == [(0, at) for at in range(150)]


def test_a_stream_whose_topic_is_deleted_says_so(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    tmp_path: Path,
    rows: Callable[[], list[tuple[int, int]]],
) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, {0: 10})
    query = run(stream(spark, bootstrap, topic), topic, tmp_path)
    until(lambda: len(rows()) == 10)

    delete(bootstrap, topic)
    with pytest.raises(StreamingQueryException) as ended:
        query.awaitTermination(int(_WITHIN_S))

    said = str(ended.value)
    assert f"DataLossError: partition {topic}-0: it no longer exists" in said
    assert "Traceback" not in said


def test_a_stream_without_a_broker_says_so(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    query = noop(stream(spark, "127.0.0.1:1", topic), tmp_path, availableNow=True)

    with pytest.raises(StreamingQueryException, match=r"bootstrap\.servers: no broker answers"):
        query.awaitTermination(int(_WITHIN_S))


def test_an_end_is_refused_for_a_stream(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic)
    frame = stream(spark, bootstrap, topic, endingOffsets="latest")

    with pytest.raises(Exception, match="endingOffsets is for batch reads"):
        noop(frame, tmp_path, availableNow=True).awaitTermination(int(_WITHIN_S))
