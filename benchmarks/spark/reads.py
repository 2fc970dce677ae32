"""One Spark session and the ways in which it reads a topic into a sink that keeps nothing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from tools.test_tools import java_home

from benchmarks.peers.places import ROOT
from benchmarks.spark.ceiling import CeilingSource

CEILING, OURS, CONNECTOR = "ceiling", "waystation", "kafka connector"


@contextmanager
def session(jars: list[Path], scratch: Path) -> Iterator[SparkSession]:
    """Two cores, as on a small laptop; ``jars`` are those of Spark's Kafka connector."""
    if (java := java_home()) is not None:
        os.environ["JAVA_HOME"] = str(java)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.speculation", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(CeilingSource)
    try:
        yield spark
    finally:
        spark.stop()


def frame(
    spark: SparkSession, way: str, bootstrap: str, topic: str, rows: int, value_bytes: int
) -> DataFrame:
    """The topic, read in one of the ways; each has all columns but the headers."""
    if way == CEILING:
        options = {"rows": rows, "valueBytes": value_bytes, "tasks": 2}
        return spark.read.format("ceiling").options(**options).load()
    if way == OURS:
        reader = spark.read.format("waystation").option("bootstrap.servers", bootstrap)
    else:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).load()


def rows_per_s(frame: DataFrame, rows: int) -> float:
    """How fast ``frame`` is read, Spark's planning included."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return rows / (time.perf_counter() - began)
