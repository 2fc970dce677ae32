"""Back into the log: every order that could be read becomes one message, exactly once."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

dp.create_sink(
    "checked",
    "waystation",
    {
        "bootstrap.servers": str(spark.conf.get("spark.waystation.bootstrap")),
        "topic": str(spark.conf.get("spark.waystation.to")),
        "sinkId": str(spark.conf.get("spark.waystation.sink")),
    },
)


@dp.append_flow(target="checked")
def orders_to_topic() -> DataFrame:
    """Keys stay what they were; rows of a table have no order, so that messages have none."""
    return spark.readStream.table("silver").selectExpr(
        "customer AS key", "to_json(struct(order, amount, timestamp)) AS value"
    )
