"""Read, write, archive and transform on a real cluster whose workers die: by value, each once."""

import asyncio
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.pipelines.cluster_jobs import CHANGED, COPIES, SOURCE
from tests.pipelines.committed import committed, ends, in_the_log
from tests.spark.topics import create
from tests.support.soak import count
from tests.support.spark_cluster import SparkCluster, kill_session, wait_for
from waystation import Producer

pytestmark = [pytest.mark.heavy(75), pytest.mark.timeout(count(400, 3_600))]

RECORDS = count(2_000, 100_000)
PER_BATCH = RECORDS // count(4, 40)
MORE_DEATHS = count(0, 10)
KEYS = 40


def test_jobs_outlive_the_workers_they_run_on(bootstrap: str, tmp_path: Path) -> None:
    for topic in (SOURCE, COPIES, CHANGED):
        create(bootstrap, topic, 2)
    sent = asyncio.run(fill(bootstrap))
    with (
        SparkCluster(tmp_path / "cluster") as cluster,
        Driver(cluster.master, bootstrap, tmp_path) as driver,
    ):
        read = driver.told("read")
        for held, topic in (("write", COPIES), ("transform", CHANGED)):
            driver.wait_until_held(held)
            wait_until_written(bootstrap, topic)
        cluster.working()[0].kill()
        for held in ("write", "transform"):
            driver.let_go(held)
        kill_others(cluster, driver)
        batches = driver.told("batches")

    assert min(batches) > 1, f"nothing was in the middle of anything: {batches}"
    assert by_key((f"k{int(v[1:]) % KEYS}".encode(), v.encode()) for _, _, v in read) == sent
    assert every_row_once(bootstrap, COPIES) == sent
    assert every_row_once(bootstrap, CHANGED) == {
        key: [value + b"!" for value in found] for key, found in sent.items()
    }
    assert sorted(archived(tmp_path / "lake")) == read


def kill_others(cluster: SparkCluster, driver: "Driver") -> None:
    """Let one worker after the other join and die, as long as there is something to do."""
    for _ in range(MORE_DEATHS):
        cluster.start_worker()
        wait_for(lambda: len(cluster.working()) > 1 or driver.has_ended, "no executor", 120)
        if not driver.has_ended:
            cluster.working()[0].kill()


def wait_until_written(bootstrap: str, topic: str) -> None:
    """Until both tasks have something in the log: each writes to the partition that it reads."""

    def both() -> bool:
        return all(ends(bootstrap, topic).values())

    wait_for(both, f"nothing is written to {topic}")


async def fill(bootstrap: str) -> dict[bytes, list[bytes]]:
    """Messages whose keys go round; what was sent under each, in order."""
    sent: defaultdict[bytes, list[bytes]] = defaultdict(list)
    async with Producer(bootstrap) as producer:
        for number in range(RECORDS):
            key, value = f"k{number % KEYS}".encode(), f"v{number}".encode()
            producer.submit(SOURCE, value, key=key)
            sent[key].append(value)
            if number % 1_000 == 0:
                await producer.drain()
    return dict(sent)


def by_key(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    found: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def every_row_once(bootstrap: str, topic: str) -> dict[bytes, list[bytes]]:
    """What is shown under each key, in order; rows of the dead are in the log, and are not."""
    shown = committed(bootstrap, topic)
    assert len(in_the_log(bootstrap, topic)) > len(shown), f"nobody died while writing {topic}"
    return by_key((one.key or b"", one.value or b"") for one in shown)


def archived(lake: Path) -> Iterable[list[Any]]:
    table = DeltaTable(lake).to_pyarrow_table(columns=["partition", "offset", "value"])
    for row in table.to_pylist():
        yield [row["partition"], row["offset"], row["value"].decode()]


class Driver:
    """``cluster_jobs.py`` in a process of its own."""

    def __init__(self, master: str, bootstrap: str, home: Path) -> None:
        self._home = home
        self._log = (home / "driver.log").open("wb")
        words = [sys.executable, "-m", "tests.pipelines.cluster_jobs"]
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        self._process = subprocess.Popen(
            [*words, master, bootstrap, str(home), str(PER_BATCH)],
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **python},
            start_new_session=True,
        )

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *failure: object) -> None:
        if failure[0] is None:
            assert self._process.wait(60) == 0, self._said()
        kill_session(self._process)
        self._log.close()

    @property
    def has_ended(self) -> bool:
        """Whether it is done, or dead."""
        return self._process.poll() is not None

    def told(self, fact: str) -> Any:
        """What it says next, which is ``fact``."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"it ended before {fact}: {self._said()}"
        return json.loads(line)[fact]

    def wait_until_held(self, what: str) -> None:
        """Until both tasks of ``what`` have come half way."""
        gates = [self._home / f"{what}.held.{task}" for task in range(2)]

        def both() -> bool:
            assert not self.has_ended, self._said()
            return all(gate.exists() for gate in gates)

        wait_for(both, f"{what} is not held: {self._said()}")

    def let_go(self, what: str) -> None:
        """From now on no task of ``what`` waits."""
        (self._home / f"{what}.go").touch()

    def _said(self) -> str:
        return (self._home / "driver.log").read_text()[-3_000:]
