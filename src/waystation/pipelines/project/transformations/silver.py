"""Silver: messages that say what they should, with types; and those that do not, put aside."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

ORDER = "order BIGINT, amount DOUBLE"
"""What the JSON of a value holds; edit it for your messages."""

IS_ORDER = "read.order IS NOT NULL"


@dp.temporary_view
def messages() -> DataFrame:
    """Values as text, and what they say if they are orders."""
    return spark.readStream.table("bronze").selectExpr(
        "CAST(key AS STRING) AS customer",
        "CAST(value AS STRING) AS text",
        f"from_json(CAST(value AS STRING), '{ORDER}') AS read",
        "timestamp",
        "partition",
        "offset",
    )


@dp.table(comment="Orders, one row each")
def silver() -> DataFrame:
    """What could be read."""
    orders = spark.readStream.table("messages").where(IS_ORDER)
    return orders.select("customer", "read.*", "timestamp", "partition", "offset")


@dp.table(comment="Messages that are no orders")
def rejected() -> DataFrame:
    """What could not: nothing is lost, and somebody may look at it."""
    others = spark.readStream.table("messages").where(f"NOT ({IS_ORDER})")
    return others.select("customer", "text", "timestamp", "partition", "offset")
