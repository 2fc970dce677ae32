"""A lake on a full disk: the archive says so, shows no half batch, and goes on with more room."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.test_full_disk import unsharing
from tests.support.soak import SOAKING
from waystation import Producer

pytestmark = [pytest.mark.heavy(30), pytest.mark.timeout(400)]

RECORDS, RECORD_BYTES = 600, 10_000
MOUNT = 'mount -t tmpfs -o size=3m tmpfs "$0" && exec "$@"'


def check_a_full_lake(bootstrap: str, topic: str, tmp_path: Path) -> None:
    asyncio.run(fill(bootstrap, topic))
    lake = tmp_path / "lake"
    lake.mkdir()
    driver = [sys.executable, "-m", "tests.pipelines.full_disk", bootstrap, topic, str(lake)]
    ended = subprocess.run(
        [*unsharing(), "sh", "-c", MOUNT, str(lake), *driver, str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )

    told = [line for line in ended.stdout.splitlines() if line.startswith("outcome: ")]
    assert told, ended.stdout + ended.stderr
    outcome = json.loads(told[0].removeprefix("outcome: "))
    assert str(lake) in outcome["said"]
    assert "No space left" in outcome["said"]
    assert "free some space" in outcome["said"]
    assert 0 < outcome["rows"] < RECORDS
    assert outcome["rows"] % 100 == 0, "half a batch is shown"
    assert outcome["clean when full"]
    assert outcome["clean in the end"]


# Half a minute of starting Java.  Where mounting is forbidden no disk can be made too small.
if SOAKING and unsharing():
    test_a_full_lake_shows_no_half_batch = check_a_full_lake


async def fill(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        for _ in range(RECORDS):
            producer.submit(topic, os.urandom(RECORD_BYTES))
        await producer.flush()
