"""Keeps the classes that Spark loads in one file, read and checked already, for the tests.

Their Java machines live for seconds, half of which go into loading the same classes.  One job of
each kind runs here, and Java writes down what they needed (an archive of "class data sharing").
A Java or a Spark that it was not made by ignores it; without it, all only takes longer.
"""

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = Path(__file__).parent.parent / ".cache" / "spark-classes.jsa"
ORDERS, LARGE = "orders", "large-orders"


def main() -> None:
    """Record in a process of its own: Java writes when it ends, which is after its Python."""
    from test_tools import java_home

    ARCHIVE.parent.mkdir(exist_ok=True)
    unfinished = ARCHIVE.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
    recording = f"{quick} -XX:ArchiveClassesAtExit={shlex.quote(str(unfinished))}"
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": recording, "PYSPARK_PYTHON": sys.executable}
    if (java := java_home()) is not None:
        environment["JAVA_HOME"] = str(java)
    # Java holds the other ends of the pipes: this waits for it, too.
    ended = subprocess.run(
        [sys.executable, __file__, "run"], env=environment, capture_output=True, text=True
    )
    if ended.returncode != 0:
        sys.exit(f"The jobs failed:\n{ended.stdout}\n{ended.stderr}")
    if unfinished.exists():  # not so if this Java's own classes were left out of its package
        unfinished.replace(ARCHIVE)


def run() -> None:
    """What most tests do: topics into tables, topics into topics, and questions about both."""
    from pyspark.sql import SparkSession

    from waystation.testing.process import BrokerProcess

    with (
        tempfile.TemporaryDirectory(prefix="waystation-classes-") as folder,
        BrokerProcess(Path(folder) / "broker").start() as broker,
    ):
        asyncio.run(fill(broker.bootstrap))
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.local.dir", f"{folder}/local")
            .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
            .getOrCreate()
        )
        run_jobs(spark, broker.bootstrap, Path(folder))
        spark.stop()


async def fill(bootstrap: str) -> None:
    from waystation import Admin, Producer

    async with Admin(bootstrap) as admin:
        for topic in (ORDERS, LARGE):
            await admin.create_topic(topic, 2)
    async with Producer(bootstrap) as producer:
        for number in range(10):
            producer.submit(ORDERS, b'{"amount": %d}' % number, key=b"k%d" % number)


def run_jobs(spark: "SparkSession", bootstrap: str, home: Path) -> None:
    from waystation.pipelines.archive import archive
    from waystation.pipelines.dedupe import dedupe
    from waystation.pipelines.transform import transform

    to_table = archive(
        spark, bootstrap=bootstrap, topics=ORDERS, lake=home / "lake", available_now=True
    )
    to_topic = transform(
        spark,
        bootstrap=bootstrap,
        topics=ORDERS,
        to=LARGE,
        checkpoint=home / "large",
        sql="SELECT key, cast(value.amount AS string) AS value FROM messages",
        value_format="json",
        available_now=True,
    )
    once = dedupe(
        spark,
        bootstrap=bootstrap,
        topics=ORDERS,
        to=LARGE,
        checkpoint=home / "once",
        id="key",
        within="1 hour",
        available_now=True,
    )
    for query in (to_table, to_topic, once):
        query.awaitTermination()
    read = spark.read.format("waystation").option("subscribe", LARGE)
    rows = read.option("bootstrap.servers", bootstrap).load()
    rows.groupBy("key").count().orderBy("key").collect()
    rows.write.parquet(str(home / "rows"))
    spark.read.parquet(str(home / "rows")).selectExpr("count(DISTINCT key)").collect()


if __name__ == "__main__":
    run() if sys.argv[1:] == ["run"] else main()
