"""One driver that reads, then writes, archives and transforms at once; see test_standalone_cluster.

It is told where things are on its command line, and says on its output, in JSON, what it has done.
Rows can be held in the middle of a task, so that whoever watches may kill what the task runs on:
some are let by and reach the log, a file says so, and the rest waits until there is another file.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from waystation.pipelines.archive import archive
from waystation.pipelines.job import Job, session, source
from waystation.pipelines.transform import transform

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SOURCE, COPIES, CHANGED = "orders", "copies", "changed"
ROWS_AT_ONCE, LET_BY = 50, 4
SMALL_BATCHES = {"kafka.batch.size": 500}
"""So that rows are in the log soon after a task has handed them over."""
COLUMNS = "topic string, partition int, offset bigint, key binary, value binary"


def main(master: str, bootstrap: str, home: str, per_batch: str) -> None:
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "20",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_AT_ONCE),
        "spark.buffer.size": "512",
        # Begin when both workers have an executor, or one of them would be killed unused.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    conf = tuple(f"{name}={value}" for name, value in settings.items())
    job = Job(bootstrap, (SOURCE,), master=master, conf=conf)
    spark = session(job, "cluster")
    frame = source(spark, job, stream=False, schema=COLUMNS)
    tell(read=sorted([r.partition, r.offset, r.value.decode()] for r in frame.collect()))
    to_lake = start_archive(spark, bootstrap, home, per_batch)
    to_topic = start_transform(spark, bootstrap, home, per_batch)
    write(frame, bootstrap, home)
    for query in (to_lake, to_topic):
        query.awaitTermination()
    tell(batches=[one.lastProgress["batchId"] + 1 for one in (to_lake, to_topic)])
    spark.stop()


def write(frame: "DataFrame", bootstrap: str, home: str) -> None:
    rows = held(frame.select("key", "value"), f"{home}/write")
    options = {"bootstrap.servers": bootstrap, "topic": COPIES, "sinkId": "cluster-write"}
    rows.write.format("waystation").options(**options, **SMALL_BATCHES).mode("append").save()


def start_archive(
    spark: "SparkSession", bootstrap: str, home: str, per_batch: str
) -> "StreamingQuery":
    """Returns when it is under way."""
    query = archive(
        spark,
        bootstrap=bootstrap,
        topics=SOURCE,
        lake=f"{home}/lake",
        available_now=True,
        source_options={"maxOffsetsPerTrigger": per_batch},
    )
    while query.isActive and query.lastProgress is None:
        time.sleep(0.05)
    return query


def start_transform(
    spark: "SparkSession", bootstrap: str, home: str, per_batch: str
) -> "StreamingQuery":
    return transform(
        spark,
        bootstrap=bootstrap,
        topics=SOURCE,
        to=CHANGED,
        checkpoint=f"{home}/checkpoint",
        function=changed(f"{home}/transform"),
        available_now=True,
        source_options={"maxOffsetsPerTrigger": int(per_batch) * 2},
        sink_options=SMALL_BATCHES,
    )


def changed(gate: str) -> "Callable[[DataFrame], DataFrame]":
    def rows(frame: "DataFrame") -> "DataFrame":
        return held(frame.selectExpr("key", "concat(value, cast('!' as binary)) as value"), gate)

    return rows


def held(frame: "DataFrame", gate: str) -> "DataFrame":
    """The same rows, held in the middle of each task."""

    def holding(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == LET_BY:
                Path(f"{gate}.held.{context.partitionId()}").touch()
                while not Path(f"{gate}.go").exists():
                    time.sleep(0.02)
            yield batch

    return frame.mapInArrow(holding, frame.schema)


def tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201 - it is a program


if __name__ == "__main__":
    main(*sys.argv[1:])
