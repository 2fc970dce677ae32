"""Driver, workers and broker are killed under a replay: every message is sent once, in order."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipelines.test_archive_kills import _workers as workers
from tests.pipelines.topic_contents import contents, create, fill
from tests.support.soak import SOAKING, count
from waystation.pipelines.archive import archive
from waystation.pipelines.job import follow
from waystation.pipelines.progress import BatchReport
from waystation.pipelines.replay import Selection, replay
from waystation.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Java machines are started and killed: a busy computer takes its time.
pytestmark = [pytest.mark.heavy(40), pytest.mark.timeout(count(400, 7_200))]

SOURCE, TO = "orders", "orders-again"
RECORDS = count(1_000, 4_000)
CHUNK = count(100, 100)
ROUNDS = count(1, 15)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One that may be killed, with a topic to replay."""
    with BrokerProcess(tmp_path / "data").start() as process:
        create(process.bootstrap, SOURCE, TO)
        fill(process.bootstrap, SOURCE, map(original, range(RECORDS)))
        yield process


def original(number: int) -> dict[str, Any]:
    return {"value": f"v{number}", "key": f"k{number % 10}", "partition": number % 2}


def every_message_was_sent_once(broker: BrokerProcess) -> None:
    """Each with the right value, and those of a key in their order."""
    found = contents(broker.bootstrap, TO)
    by_key: dict[bytes | None, list[bytes | None]] = {}
    for one in found:
        by_key.setdefault(one.key, []).append(one.value)
    wanted: dict[bytes | None, list[bytes | None]] = {}
    for number in range(RECORDS):
        was = original(number)
        wanted.setdefault(was["key"].encode(), []).append(was["value"].encode())
    assert by_key == wanted


def finish(spark: "SparkSession", selection: Selection, checkpoint: Path, **more: Any) -> None:
    """Send what is left, as somebody would who found the job dead."""
    done = replay(spark, selection, to=TO, checkpoint=checkpoint, **more)
    assert (done.ended, done.messages) == (True, RECORDS)


def start_driver(broker: BrokerProcess, *words: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "waystation.pipelines.replay", "--json"]
    command += ["--bootstrap", broker.bootstrap, "--to", TO, "--chunk", str(CHUNK), *words]
    command += ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)


def test_a_driver_that_is_killed_costs_nothing(
    spark: "SparkSession", own_broker: BrokerProcess, tmp_path: Path
) -> None:
    """From a lake, whose order is made by a shuffle."""
    lake, checkpoint, dice = tmp_path / "lake", tmp_path / "c", random.Random(3)
    archiving = archive(
        spark, bootstrap=own_broker.bootstrap, topics=SOURCE, lake=lake, available_now=True
    )
    follow(archiving, json_output=True)

    for _ in range(ROUNDS):
        words = ("--lake", str(lake), "--checkpoint", str(checkpoint))
        with start_driver(own_broker, *words) as driver:
            assert driver.stdout is not None
            first = driver.stdout.readline()
            time.sleep(dice.random())
            os.killpg(driver.pid, signal.SIGKILL)
        assert first, "it ended before its first chunk did"

    finish(spark, Selection(bootstrap=own_broker.bootstrap, lake=lake), checkpoint)
    every_message_was_sent_once(own_broker)


def check_a_driver_that_is_interrupted(own_broker: BrokerProcess, tmp_path: Path) -> None:
    """Ctrl-C lets the chunk at hand finish; the next start has nothing to repeat."""
    words = ("--topics", SOURCE, "--checkpoint", str(tmp_path / "c"))
    told: list[dict[str, Any]] = []
    for last in (False, True):
        with start_driver(own_broker, *words) as driver:
            assert driver.stdout is not None
            lines = [driver.stdout.readline()]
            if not last:
                os.kill(driver.pid, signal.SIGINT)
            lines += driver.stdout.readlines()
        assert driver.returncode == 0
        told += map(json.loads, lines)

    chunks = [one["batch"] for one in told if "batch" in one]
    ends = [(one["ended"], one["messages"]) for one in told if "ended" in one]
    assert chunks == [*range(RECORDS // CHUNK)], "each was sent by one of the two"
    assert ends[0][0] is False
    assert ends[1] == (True, RECORDS)
    every_message_was_sent_once(own_broker)


if SOAKING:  # it costs two more Java machines
    test_a_driver_that_is_interrupted_stops_between_chunks = check_a_driver_that_is_interrupted


def test_a_broker_that_is_killed_costs_nothing(
    spark: "SparkSession", own_broker: BrokerProcess, tmp_path: Path
) -> None:
    selection = Selection(bootstrap=own_broker.bootstrap, topics=SOURCE)
    dice, rounds = random.Random(5), [*range(ROUNDS)]

    def restart() -> None:
        time.sleep(dice.random() * 0.3)
        own_broker.kill()
        own_broker.start()

    def tell(_: BatchReport) -> None:
        if rounds:
            rounds.pop()
            threads.append(threading.Thread(target=restart))
            threads[-1].start()

    threads: list[threading.Thread] = []
    for _ in range(2 * ROUNDS):
        with contextlib.suppress(Exception):  # it may fail, and then goes on when started again
            finish(spark, selection, tmp_path / "c", chunk_offsets=CHUNK, tell=tell)
        for thread in threads:
            thread.join()

    finish(spark, selection, tmp_path / "c")
    assert not rounds
    every_message_was_sent_once(own_broker)


def check_workers_that_are_killed(
    spark: "SparkSession", own_broker: BrokerProcess, tmp_path: Path
) -> None:
    selection = Selection(bootstrap=own_broker.bootstrap, topics=SOURCE)
    dice, killed = random.Random(7), threading.Event()

    def kill() -> None:
        while not killed.wait(0.5 + 2 * dice.random()):
            for worker in workers():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    for _ in range(ROUNDS):
        with contextlib.suppress(Exception):  # a task that died ends the chunk
            finish(spark, selection, tmp_path / "c", chunk_offsets=CHUNK)
    killed.set()
    killer.join()

    finish(spark, selection, tmp_path / "c")
    every_message_was_sent_once(own_broker)


if SOAKING:  # workers die every day under the sink itself, in tests/spark
    test_workers_that_are_killed_cost_nothing = check_workers_that_are_killed
