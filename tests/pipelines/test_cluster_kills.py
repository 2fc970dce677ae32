"""A real executor, a Java machine of its own, is killed under an archive: every offset is once."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipelines.test_archive_kills import (
    PER_BATCH,
    TOPIC,
    every_offset_is_there_once,
    own_broker,
)
from tests.support.soak import SOAKING, count
from waystation.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["own_broker"]  # a fixture of this module too

pytestmark = [pytest.mark.heavy(60), pytest.mark.timeout(count(400, 3_600))]

EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


def check_executors_of_a_cluster(
    spark: "SparkSession", own_broker: BrokerProcess, tmp_path: Path
) -> None:
    """The cluster starts others in their place, and the job ends by itself."""
    lake = tmp_path / "lake"
    command = [sys.executable, "-m", "waystation.pipelines.archive", "--json", "--available-now"]
    command += ["--bootstrap", own_broker.bootstrap, "--topics", TOPIC, "--lake", str(lake)]
    command += ["--option", f"maxOffsetsPerTrigger={PER_BATCH // 2}"]
    command += ["--master", "local-cluster[2,1,512]", "--conf", "spark.executor.memory=512m"]
    command += ["--conf", "spark.ui.enabled=false"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        ) as driver,
    ):
        assert driver.stdout is not None
        killed = 0
        for _ in driver.stdout:  # a line after each batch
            if killed < count(1, 20):
                for executor in list(executors(driver.pid))[:1]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(executor, signal.SIGKILL)
                        killed += 1

    assert driver.returncode == 0, (tmp_path / "log").read_text()[-2_000:]
    assert killed, "no executor was found"
    every_offset_is_there_once(spark, lake)


if SOAKING:  # every day the workers of one machine are killed, in test_archive_kills.py
    test_executors_of_a_cluster_that_are_killed_cost_nothing = check_executors_of_a_cluster


def executors(session: int) -> Iterator[int]:
    """The executors' processes in a session of processes."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if os.getsid(int(entry.name)) != session:
                continue
            if EXECUTOR in (entry / "cmdline").read_bytes().split(b"\0"):
                yield int(entry.name)
