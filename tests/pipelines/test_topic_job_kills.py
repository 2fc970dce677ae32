"""Drivers of jobs from topic to topic are killed while they write: each message once, in order."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.pipelines.topic_contents import by_key, contents, create, fill
from tests.support.soak import SOAKING, count
from waystation.pipelines.dedupe import dedupe
from waystation.pipelines.job import follow
from waystation.pipelines.sessions import sessions
from waystation.pipelines.transform import transform
from waystation.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.heavy(35), pytest.mark.timeout(count(400, 3_600))]

MESSAGES = count(4_000, 40_000)
PER_BATCH = count(400, 1_000)
KEYS = 20
ROUNDS = count(1, 10)
NOON_MS = 1_769_860_800_000
SESSION = 25
"""So many messages of a key follow each other, second by second; then it is away for a minute."""

IN, OUT, DEAD = "orders", "orders-out", "orders-dead"


IS_DEAD = 7
"""Every so many messages one is no JSON."""


class JobKind(NamedTuple):
    """A job, what it is asked for, and what it must have written of each key."""

    start: Callable[..., Any]
    asked: dict[str, str]
    written: Callable[[list[int]], list[bytes]]
    copies: int = 1


def _sessions_of(numbers: list[int]) -> list[bytes]:
    """The counts of those that are over: behind the last one nothing comes."""
    whole = len(numbers) // SESSION - (len(numbers) % SESSION == 0)
    return [b"%d" % SESSION] * whole


KINDS = {
    "transform": JobKind(
        transform,
        {"sql": "SELECT key, concat('t', cast(value AS string)) AS value FROM messages"},
        lambda numbers: [b"t%d" % number for number in numbers],
    ),
    "transform with dead letters": JobKind(
        transform,
        {
            "sql": "SELECT key, cast(value.n AS string) AS value FROM messages",
            "value-format": "json",
            "dead-letters": DEAD,
        },
        lambda numbers: [b"%d" % number for number in numbers if number % IS_DEAD],
    ),
    "dedupe": JobKind(
        dedupe,
        {"id": "header:id", "within": "1 hour"},
        lambda numbers: [b"%d" % number for number in numbers],
        copies=2,
    ),
    "sessions": JobKind(sessions, {"gap": "30 seconds", "late": "30 seconds"}, _sessions_of),
}
OF_TODAY = [*KINDS] if SOAKING else ["transform"]


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data").start() as process:
        create(process.bootstrap, IN, OUT, DEAD)
        yield process


def numbers_of(key: int) -> list[int]:
    return [*range(key, MESSAGES, KEYS)]


def records(kind: JobKind) -> Iterator[dict[str, Any]]:
    """Every key in turn; a copy comes at once, as a producer would send it again."""
    typed = "value-format" in kind.asked
    for number in range(MESSAGES):
        turn = number // KEYS
        at_s = turn + turn // SESSION * 60
        for _ in range(kind.copies):
            yield {
                "value": b'{"n": %d}' % number if typed and number % IS_DEAD else b"%d" % number,
                "key": b"k%d" % (number % KEYS),
                "headers": [("id", b"%d" % number)],
                "timestamp": NOON_MS + at_s * 1_000,
            }


@pytest.mark.parametrize("name", OF_TODAY)
def test_a_driver_that_is_killed_while_it_writes_loses_and_doubles_nothing(
    spark: "SparkSession", own_broker: BrokerProcess, tmp_path: Path, name: str
) -> None:
    kind, chance = KINDS[name], random.Random(name)
    fill(own_broker.bootstrap, IN, records(kind))

    for _ in range(ROUNDS):
        kill_one(kind, own_broker.bootstrap, tmp_path, chance)
    asked = {option.replace("-", "_"): value for option, value in kind.asked.items()}
    query = kind.start(
        spark,
        bootstrap=own_broker.bootstrap,
        topics=IN,
        to=OUT,
        checkpoint=tmp_path / "state",
        available_now=True,
        source_options={"maxOffsetsPerTrigger": 10 * PER_BATCH},
        **asked,
    )
    follow(query, json_output=True)

    found = by_key(contents(own_broker.bootstrap, OUT))
    shown = {key: [as_told(kind, value) for value in values] for key, values in found.items()}
    assert shown == {b"k%d" % key: kind.written(numbers_of(key)) for key in range(KEYS)}
    dead = by_key(contents(own_broker.bootstrap, DEAD))
    assert dead == ({} if "dead-letters" not in kind.asked else dead_letters())


def dead_letters() -> dict[bytes, list[bytes]]:
    all_of = {key: [n for n in numbers_of(key) if n % IS_DEAD == 0] for key in range(KEYS)}
    return {b"k%d" % key: [b"%d" % n for n in numbers] for key, numbers in all_of.items()}


def as_told(kind: JobKind, value: bytes | None) -> bytes | None:
    """Of a session, how many messages it has."""
    return b"%d" % json.loads(value or b"")["messages"] if kind.start is sessions else value


def kill_one(kind: JobKind, bootstrap: str, home: Path, chance: random.Random) -> None:
    """Let a driver begin, and end it with its Java machine somewhere in the middle of a batch."""
    command = [
        sys.executable,
        "-m",
        f"waystation.pipelines.{kind.start.__name__}",
        "--json",
        "--every",
        "0",
    ]
    command += ["--bootstrap", bootstrap, "--topics", IN, "--to", OUT]
    command += ["--checkpoint", str(home / "state"), "--master", "local[2]"]
    command += ["--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"]
    command += ["--option", f"maxOffsetsPerTrigger={PER_BATCH}"]
    for option, value in kind.asked.items():
        command += [f"--{option}", value]
    with (home / "log").open("ab") as log:
        driver = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    with driver:
        assert driver.stdout is not None
        first = driver.stdout.readline()
        time.sleep(chance.random())
        os.killpg(driver.pid, signal.SIGKILL)
    assert first, f"it ended before its first batch did: {(home / 'log').read_text()}"
