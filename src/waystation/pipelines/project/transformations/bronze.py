"""Bronze: every message of the topic once, as it came and with where it stands in the log."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table(comment="Messages as they came")
def bronze() -> DataFrame:
    """A run reads what has come since the one before it."""
    return (
        spark.readStream.format("waystation")
        .option("bootstrap.servers", spark.conf.get("spark.waystation.bootstrap"))
        .option("subscribe", spark.conf.get("spark.waystation.topic"))
        .option("startingOffsets", "earliest")
        .load()
    )
