"""Writes the letters with Spark's own Kafka sink: in one write per codec, and as a stream.

python spark_sink.py BOOTSTRAP PREFIX JARS SCRATCH LETTERS

The letters lie in the folder LETTERS.  The stream goes to the topics ``PREFIX-stream-CODEC``.
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_SCHEMA = "partition INT, timestamp BIGINT, key STRING, value STRING, headers ARRAY<ARRAY<STRING>>"


def main(bootstrap: str, prefix: str, jars: str, scratch: str, letters: str) -> None:
    """Each codec twice."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.jars", jars)
        .config("spark.local.dir", scratch)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for codec in _CODECS:
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "kafka.compression.type": codec,
            "kafka.max.request.size": str(4 << 20),
            "includeHeaders": "true",
        }
        read = spark.read.schema(_SCHEMA).json(letters)
        records(read).write.format("kafka").options(topic=f"{prefix}-{codec}", **options).save()
        query = (
            records(spark.readStream.schema(_SCHEMA).json(letters))
            .writeStream.format("kafka")
            .options(topic=f"{prefix}-stream-{codec}", **options)
            .option("checkpointLocation", str(Path(scratch) / "sink" / codec))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    spark.stop()


def records(letters: DataFrame) -> DataFrame:
    """As the sink wants them, in one task: it keeps the order of each."""
    return letters.coalesce(1).selectExpr(
        "partition",
        "unhex(key) AS key",
        "unhex(value) AS value",
        "transform(headers, h -> struct(h[0] AS key, unhex(h[1]) AS value)) AS headers",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
