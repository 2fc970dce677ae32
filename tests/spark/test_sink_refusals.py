"""What a sink refuses: a clear sentence, nothing half-written, nothing doubled."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from tests.spark.sink_deaths import PAUSE, Plan, register_deadly
from tests.spark.sink_queries import PER_BATCH, check_once, counted, held, start, unended
from tests.spark.topics import create, delete
from tests.support.soak import SOAKING
from waystation.client.connection import Connection
from waystation.spark.sink import batch_writer, stream_writer
from waystation.spark.sink_errors import NoTwoPhaseCommitError
from waystation.testing.process import BrokerProcess
from waystation.wire.versions import ApiKey

pytestmark = [pytest.mark.heavy(30), pytest.mark.timeout(400)]

_WITHIN_S = 200


def one_batch(spark: SparkSession, bootstrap: str, to: str, checkpoint: Path, **more: str) -> None:
    query = start(counted(spark), bootstrap, to, checkpoint, **more)
    assert query.awaitTermination(_WITHIN_S), "the query does not end"


def refused(action: Callable[[], object]) -> str:
    """What a user sees of an error."""
    with pytest.raises(PySparkException) as found:
        action()
    assert "Traceback" not in str(found.value)
    return str(found.value)


def test_a_checkpoint_may_move_and_may_not_be_lost_or_shared_or_set_back(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic, 3)
    first, moved, set_back = tmp_path / "first", tmp_path / "moved", tmp_path / "set back"

    one_batch(spark, bootstrap, topic, first, sinkId=topic)
    shutil.copytree(first, set_back)
    shutil.move(first, moved)
    for _ in range(2):
        one_batch(spark, bootstrap, topic, moved, sinkId=topic)
    check_once(bootstrap, topic, 3 * PER_BATCH)
    lost = refused(lambda: one_batch(spark, bootstrap, topic, tmp_path / "new", sinkId=topic))
    old = refused(lambda: one_batch(spark, bootstrap, topic, set_back, sinkId=topic))

    assert f"SinkOfAnotherQueryError: sink {topic}: it belongs to query" in lost
    assert "which has written up to batch 2" in lost
    assert f"OlderCheckpointError: sink {topic}: batch 1 was to be written, and batch 2" in old
    check_once(bootstrap, topic, 3 * PER_BATCH)
    one_batch(spark, bootstrap, topic, moved, sinkId=topic)
    check_once(bootstrap, topic, 4 * PER_BATCH)


def test_a_write_with_a_number_is_made_once(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create(bootstrap, topic, 2)

    def write(first: int, **more: str) -> None:
        frame = spark.range(first, first + 10).selectExpr("string(id) as value")
        options = {"bootstrap.servers": bootstrap, "topic": topic, "sinkId": topic, **more}
        frame.write.format("waystation").mode("append").options(**options).save()

    write(0, batchId="5")
    write(0, batchId="5")
    write(10)
    differs = refused(lambda: write(20, batchId="5"))

    assert "OlderCheckpointError" in differs
    values = sorted(int(one.value or b"") for one in held(bootstrap, topic))
    assert values == [*range(20)]
    assert unended(bootstrap, topic) == []


def test_batches_of_foreach_batch_are_written_once_by_their_number(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic, 3)

    def write(frame: DataFrame, batch: int) -> None:
        options = {"bootstrap.servers": bootstrap, "topic": topic, "sinkId": topic}
        writer = frame.write.format("waystation").mode("append").options(**options)
        for _ in range(2):  # as after a death between this write and Spark's own log
            writer.option("batchId", batch).save()

    query = counted(spark).writeStream.foreachBatch(write).trigger(availableNow=True)
    assert query.option("checkpointLocation", str(tmp_path)).start().awaitTermination(_WITHIN_S)

    check_once(bootstrap, topic, PER_BATCH)


def check_topic_that_is_deleted_between_batches(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create(bootstrap, topic, 3)
    one_batch(spark, bootstrap, topic, tmp_path, sinkId=topic)

    delete(bootstrap, topic)
    gone = refused(lambda: one_batch(spark, bootstrap, topic, tmp_path, sinkId=topic))
    create(bootstrap, topic, 3)
    one_batch(spark, bootstrap, topic, tmp_path, sinkId=topic)

    assert f"topic {topic} does not exist: create it with `waystation topic create" in gone
    assert len(held(bootstrap, topic)) == 2 * PER_BATCH
    assert unended(bootstrap, topic) == []


if SOAKING:  # every day without Spark, in test_sink_writing.py
    test_a_topic_that_is_deleted_ends_the_query = check_topic_that_is_deleted_between_batches


def test_past_the_operators_limit_nothing_of_a_batch_is_shown(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    register_deadly(spark)
    plan = Plan(tmp_path, PAUSE, {0: "undecided"})
    options = {"transaction.prepared.max.ms": "1000"}
    with BrokerProcess(tmp_path / "data", options=options).start() as broker:
        create(broker.bootstrap, topic, 3)

        def attempt(sink: str, **more: str) -> None:
            query = start(
                counted(spark),
                broker.bootstrap,
                topic,
                tmp_path / "checkpoint",
                sink,
                sinkId=topic,
                **more,
            )
            assert query.awaitTermination(_WITHIN_S)

        said = refused(lambda: attempt("deadly", **plan.as_options()))
        assert f"PreparedRowsGoneError: sink {topic}: batch 0 cannot be committed" in said
        assert "is aborted_by_limit" in said
        assert held(broker.bootstrap, topic) == []

        broker.stop()
        broker.options.clear()
        broker.start()
        attempt("waystation")
        check_once(broker.bootstrap, topic, 2 * PER_BATCH)


def test_brokers_that_cannot_prepare_are_refused_before_a_row_is_written(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(bootstrap, topic)
    frame = StructType([StructField("value", StringType())])
    options = {"bootstrap.servers": bootstrap, "topic": topic}
    monkeypatch.setattr(Connection, "speaks", lambda _, api: api is not ApiKey.PREPARE_TXN)

    with pytest.raises(NoTwoPhaseCommitError, match="set deliveryGuarantee to at-least-once"):
        stream_writer(options, frame, overwrite=False)
    with pytest.raises(NoTwoPhaseCommitError, match=f"sink {topic}-x: the brokers"):
        batch_writer({**options, "sinkId": f"{topic}-x"}, frame, overwrite=False)

    stream_writer({**options, "deliveryGuarantee": "at-least-once"}, frame, overwrite=False)
    batch_writer(options, frame, overwrite=False)
