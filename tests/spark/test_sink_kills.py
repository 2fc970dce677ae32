"""Whoever dies, wherever, and whatever wakes up late: every row is there once, in order."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.sink_deaths import (
    BROKER,
    EXIT,
    POINTS,
    STOP,
    Plan,
    folder,
    name_of,
    register_deadly,
)
from tests.spark.sink_queries import PER_BATCH, check_once, counted, start
from tests.spark.topics import create
from tests.support.sessions import descendants, end_session, is_alive, is_stopped, parent_of
from tests.support.soak import SOAKING, count
from waystation.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Java machines are started and killed: a busy computer takes its time.
pytestmark = [pytest.mark.heavy(70), pytest.mark.timeout(7200 if SOAKING else 400)]

# Every day each point by one of the deaths, and all deaths at each when soaking.
OF_DRIVERS = POINTS if SOAKING else ("written", "prepared", "undecided", "decided", "committed")
OF_BROKERS = POINTS if SOAKING else ("task done", "one ended", "all ended")

_WITHIN_S = 200.0


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: it did not happen"
        time.sleep(0.05)


def start_driver(home: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    with (home / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.sink_deaths", home, *arguments],
            cwd=Path(__file__).parents[2],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


# --- drivers ------------------------------------------------------------------------------------


def test_a_driver_that_dies_at_any_point_and_what_is_left_of_it(
    spark: "SparkSession", bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """One driver, a query for each point; its tasks and commits outlive it, and wake up late."""
    plans = {}
    for point in OF_DRIVERS:
        create(bootstrap, name_of(topic, point), 3)
        folder(tmp_path, point).mkdir()
        plans[point] = Plan(folder(tmp_path, point), STOP, {1: point})
    driver = start_driver(tmp_path, bootstrap, topic, *OF_DRIVERS)
    zombies: dict[str, int] = {}
    try:
        for point, plan in plans.items():
            until(lambda plan=plan: is_stopped(plan.has_reached(1) or 0), point)
            zombies[point] = plan.has_reached(1) or 0
        end_session(driver)
        check_recovery(spark, bootstrap, topic, tmp_path)
        for pid in zombies.values():
            os.kill(pid, signal.SIGCONT)
        for point, pid in zombies.items():
            until(lambda pid=pid: not is_alive(pid), f"the end of {point}")
            check_once(bootstrap, name_of(topic, point), 3 * PER_BATCH)
    finally:
        end_session(driver)
        for pid in zombies.values():
            kill(pid)

    said = {point: plan.said(1) for point, plan in plans.items()}
    assert said["prepared"] == "WrittenTooLateError"
    assert said["undecided"] == "SinkTakenOverError"
    assert said["written"] not in ("", "nothing"), "a fenced producer went on"


def check_recovery(spark: "SparkSession", bootstrap: str, topic: str, home: Path) -> None:
    """Start all queries again: each repeats the batch that was under way, and makes one more."""
    queries = [
        start(
            counted(spark),
            bootstrap,
            name_of(topic, point),
            folder(home, point) / "checkpoint",
            sinkId=name_of(topic, point),
        )
        for point in OF_DRIVERS
    ]
    for query in queries:
        assert query.awaitTermination(int(_WITHIN_S))

    for point in OF_DRIVERS:
        check_once(bootstrap, name_of(topic, point), 3 * PER_BATCH)


# --- workers ------------------------------------------------------------------------------------


def check_workers_that_die_at_any_point(
    spark: "SparkSession", bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """A query for each point: it fails there, and is started again."""
    register_deadly(spark)
    for point in POINTS:
        create(bootstrap, name_of(topic, point), 3)
        folder(tmp_path, point).mkdir()

    def attempt(sink: str) -> "list[StreamingQuery]":
        return [
            start(
                counted(spark),
                bootstrap,
                name_of(topic, point),
                folder(tmp_path, point) / "checkpoint",
                sink,
                endless=sink == "deadly",
                sinkId=name_of(topic, point),
                **(_dying(tmp_path, point) if sink == "deadly" else {}),
            )
            for point in POINTS
        ]

    for query in attempt("deadly"):
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(int(_WITHIN_S))
    for query in attempt("waystation"):
        assert query.awaitTermination(int(_WITHIN_S))

    for point in POINTS:
        assert Plan(folder(tmp_path, point), EXIT, {}).has_reached(1), point
        check_once(bootstrap, name_of(topic, point), 3 * PER_BATCH)


if SOAKING:  # every day they die at random, below
    test_a_worker_that_dies_at_any_point_loses_and_doubles_nothing = (
        check_workers_that_die_at_any_point
    )


def _dying(home: Path, point: str) -> dict[str, str]:
    return Plan(folder(home, point), EXIT, {1: point}).as_options()


# --- brokers ------------------------------------------------------------------------------------


def test_a_broker_that_dies_at_any_point_loses_and_doubles_nothing(
    spark: "SparkSession", topic: str, tmp_path: Path
) -> None:
    """One query, with a death in each batch; whoever watches starts the broker again."""
    register_deadly(spark)
    plan = Plan(tmp_path, BROKER, dict(enumerate(OF_BROKERS)))
    with BrokerProcess(tmp_path / "data").start() as broker:
        create(broker.bootstrap, topic, 3)
        (tmp_path / "broker.pid").write_text(str(broker.pid))

        with keeping_up(broker, tmp_path / "broker.pid"):
            while len([*tmp_path.glob("reached *")]) < len(plan.points):
                query = start(
                    counted(spark),
                    broker.bootstrap,
                    topic,
                    tmp_path / "checkpoint",
                    "deadly",
                    endless=True,
                    sinkId=topic,
                    **plan.as_options(),
                )
                until(partial(has_done, query, len(plan.points)), "the last batch")
                query.stop()
        query = start(
            counted(spark), broker.bootstrap, topic, tmp_path / "checkpoint", sinkId=topic
        )
        assert query.awaitTermination(int(_WITHIN_S))

        assert query.lastProgress is not None
        check_once(broker.bootstrap, topic, PER_BATCH * (query.lastProgress.batchId + 1))


def has_done(query: "StreamingQuery", batches: int) -> bool:
    """Whether the query has done so many, or has failed."""
    done = query.lastProgress.batchId + 1 if query.lastProgress else 0
    return done >= batches or query.exception() is not None


@contextlib.contextmanager
def keeping_up(broker: BrokerProcess, pid_file: Path) -> Iterator[None]:
    """Start the broker again whenever it was killed."""
    over = threading.Event()

    def revive() -> None:
        if not is_alive(broker.pid):
            broker.kill()  # it is; this takes note
            broker.start()
            pid_file.write_text(str(broker.pid))

    def watch() -> None:
        while not over.wait(0.1):
            revive()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        revive()


# --- anybody, at any moment -----------------------------------------------------------------------


def test_workers_and_brokers_killed_at_random_lose_and_double_nothing(
    spark: "SparkSession", topic: str, tmp_path: Path
) -> None:
    """The driver lives; a query that fails is started again."""
    dice = random.Random(6)
    machine: Any = spark.sparkContext._jvm
    java = machine.java.lang.ProcessHandle.current().pid()
    with BrokerProcess(tmp_path / "data").start() as broker:
        create(broker.bootstrap, topic, 3)
        begin = partial(
            start, counted(spark), broker.bootstrap, topic, tmp_path / "checkpoint", sinkId=topic
        )
        with keeping_up(broker, tmp_path / "broker.pid"):
            query = begin(endless=True)
            for _ in range(count(2, 30)):
                done, deadline = committed(tmp_path), time.monotonic() + _WITHIN_S
                while committed(tmp_path) == done:
                    assert time.monotonic() < deadline, "no batch is done"
                    if query.exception() is not None:
                        query = begin(endless=True)
                    time.sleep(0.05)
                time.sleep(dice.uniform(0, 1.0))
                kill(broker.pid if dice.random() < 0.5 else a_worker(dice, java))
            query.stop()
        check_end(begin, broker.bootstrap, topic)


def check_drivers_killed_at_random(spark: "SparkSession", topic: str, tmp_path: Path) -> None:
    """Driver after driver; sometimes the broker dies too, or only a worker."""
    dice = random.Random(7)
    with BrokerProcess(tmp_path / "data").start() as broker:
        create(broker.bootstrap, topic, 3)
        with keeping_up(broker, tmp_path / "broker.pid"):
            for _ in range(30):
                driver = start_driver(tmp_path, broker.bootstrap, topic)
                done = committed(tmp_path)
                until(lambda done=done: committed(tmp_path) >= done + 2, "two batches")
                time.sleep(dice.uniform(0, 1.5))
                if dice.random() < 0.3:
                    kill(broker.pid)
                if dice.random() < 0.3:
                    kill(a_worker(dice, driver.pid))
                    time.sleep(dice.uniform(0, 1.5))
                end_session(driver)
        begin = partial(
            start, counted(spark), broker.bootstrap, topic, tmp_path / "checkpoint", sinkId=topic
        )
        check_end(begin, broker.bootstrap, topic)


if SOAKING:  # every day they die at the points above
    test_drivers_killed_at_random_lose_and_double_nothing = check_drivers_killed_at_random


def check_end(begin: "Callable[[], StreamingQuery]", bootstrap: str, topic: str) -> None:
    """Run to the end, and count."""
    query = begin()
    assert query.awaitTermination(int(_WITHIN_S))
    assert query.lastProgress is not None
    check_once(bootstrap, topic, PER_BATCH * (query.lastProgress.batchId + 1))


def committed(home: Path) -> int:
    """How many batches Spark believes are done."""
    return len([*(home / "checkpoint" / "commits").glob("[0-9]*")])


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def a_worker(dice: random.Random, ancestor: int) -> int:
    """One of the Python processes that work for a Java machine, at whatever it is.

    The daemons that make them are spared: Spark itself stumbles over one that died, and fails a
    later query with "Stream closed".
    """
    found = filter(_is_a_daemons, descendants(ancestor))
    return dice.choice([pid for pid in found if _is_a_daemons(parent_of(pid))] or [1 << 30])


def _is_a_daemons(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
