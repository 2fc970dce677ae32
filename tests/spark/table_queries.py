"""A query that writes to a table, and one that kills its driver while it does.

Run as a program it is such a driver: ``python -m tests.spark.table_queries HOME POINT BATCH``
runs batches into ``HOME/lake`` until its death at ``POINT`` of batch ``BATCH``.  Rows come from
Spark's own counter, which counts the same again after a restart.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROWS = 300
POINTS = ("files", "before commit", "between the tables", "after commit")


def counted(spark: "SparkSession") -> "DataFrame":
    """``ROWS`` rows per batch, of two topics with two partitions each; every tenth is refused."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .option("startTimestamp", 1_772_366_400_000)
        .load()
        .selectExpr(
            "cast(cast(value as string) as binary) as key",
            "if(value % 10 = 0, null, concat('v', value)) as value",
            "if(value % 2 = 0, 'even', 'odd') as topic",
            "cast(value div 2 % 2 as int) as partition",
            "value div 4 as offset",
            "timestamp",
            "to_date(timestamp) as date",
            "if(value % 10 = 0, 'ends in zero', null) as quarantine_reason",
            "if(value % 10 = 0, cast(cast(value as string) as binary), null) as quarantine_value",
        )
    )


def next_batch(
    spark: "SparkSession", home: Path, source: str = "waystation.table", **options: str
) -> "StreamingQuery":
    """Run one more batch, and first the last one again if nobody knows how it ended."""
    query = (
        counted(spark)
        .writeStream.format(source)
        .option("path", str(home / "lake"))
        .option("quarantinePath", str(home / "refused"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .option("partitionBy", "topic,date")
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def register_deadly(spark: "SparkSession", point: str, at_batch: int, pids: list[int]) -> None:
    """Make ``deadly.table``: as ``waystation.table``, but it kills ``pids`` on its way.

    With no pids it ends the process that it runs in, which is a worker of an executor.
    """
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType

    from pyspark_waystation_table import DefaultSource

    def die() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        os._exit(9)

    class Deadly(DataSourceStreamArrowWriter):
        def __init__(self, real: Any) -> None:
            self.real = real

        def write(self, iterator: Iterator[Any]) -> Any:
            message = self.real.write(iterator)
            if point == "files" and message.key.batch == at_batch:
                die()
            return message

        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
            from waystation.spark import table_writing

            through = table_writing.commit

            def and_die(*these: Any) -> None:
                through(*these)
                die()

            if batchId == at_batch and point == "before commit":
                die()
            if batchId == at_batch and point == "between the tables":
                table_writing.commit = and_die
            self.real.commit(messages, batchId)
            if batchId == at_batch and point == "after commit":
                die()

        def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803
            self.real.abort(messages, batchId)

    class DeadlySource(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "deadly.table"

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
            return Deadly(super().streamWriter(schema, overwrite))

    spark.dataSource.register(DeadlySource)


def _main() -> None:
    """A driver that dies, or is killed while it goes on and on."""
    from pyspark.sql import SparkSession

    home, point, at_batch = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.speculation", "false")
        .config("spark.local.dir", str(home / "local"))
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .getOrCreate()
    )
    machine: Any = spark.sparkContext._jvm
    pids = [machine.java.lang.ProcessHandle.current().pid(), os.getpid()]
    register_deadly(spark, point, at_batch, pids)
    while True:
        next_batch(spark, home, "deadly.table", sinkId="test")


if __name__ == "__main__":
    _main()
