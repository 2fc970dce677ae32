"""One Spark session for all tests of a run: starting one takes longer than most tests.

Java is found where ``tools/test_tools.py`` has put it, also by the programs that tests start.
"""

import os
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tools.spark_classes import ARCHIVE
from tools.test_tools import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if (_found := java_home()) is not None:
    os.environ["JAVA_HOME"] = str(_found)

# A test's Java machine lives for seconds: compiling its code well would take longer than it runs.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# And loading it would take half of that; what Java thinks of another Java's archive goes unsaid.
if ARCHIVE.exists():
    QUICK += f" -XX:SharedArchiveFile={shlex.quote(str(ARCHIVE))} -Xlog:disable"
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """Two cores, no web page, everything it writes below the tests' own folder."""
    # Imported here: most workers never need it, and it takes a second.
    from pyspark.sql import SparkSession

    home = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.speculation", "false")
        # Python and Java wait 15 s for each other, which on a crowded machine is short.
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.local.dir", str(home / "local"))
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
