"""Reads the letters with Spark's own Kafka connector and prints them, in one read and as a stream.

python spark_letters.py BOOTSTRAP PREFIX JARS SCRATCH
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import unix_millis

_PER_TRIGGER = 250  # of 600


def main(bootstrap: str, prefix: str, jars: str, scratch: str) -> None:
    """Everything twice, with a line between."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.jars", jars)
        .config("spark.local.dir", scratch)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribePattern": f"{prefix}-.*",
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    show(spark.read.format("kafka").options(**options).load())
    sys.stdout.write("and as a stream\n")
    show(streamed(spark, options, Path(scratch) / "stream"))
    spark.stop()


def streamed(spark: SparkSession, options: dict[str, str], to: Path) -> DataFrame:
    """What a stream of several batches has written; a second run must find nothing left."""
    for _ in range(2):
        source = spark.readStream.format("kafka").options(**options)
        query = (
            source.option("maxOffsetsPerTrigger", _PER_TRIGGER)
            .load()
            .writeStream.format("parquet")
            .option("path", str(to / "table"))
            .option("checkpointLocation", str(to / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return spark.read.parquet(str(to / "table"))


def show(records: DataFrame) -> None:
    """One JSON object per record, by topic, partition and offset."""
    found = records.withColumn("millis", unix_millis("timestamp"))
    for row in found.orderBy("topic", "partition", "offset").collect():
        sys.stdout.write(json.dumps(letter(row)) + "\n")


def letter(row: Row) -> dict[str, object]:
    return {
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "timestamp": row.millis,
        "key": shown(row.key),
        "value": shown(row.value),
        "headers": [[one.key, shown(one.value)] for one in row.headers or []],
    }


def shown(value: bytearray | None) -> str | None:
    return None if value is None else bytes(value).hex()


if __name__ == "__main__":
    main(*sys.argv[1:])
