"""A new project of Declarative Pipelines runs as it is, and a second run adds only what is new."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.pipelines.committed import committed
from tests.spark.topics import create
from tests.support.soak import SOAKING
from tests.support.spark import QUICK
from tests.support.spark_cluster import kill_session
from waystation import Producer
from waystation.pipelines.init import command

pytestmark = [pytest.mark.heavy(50), pytest.mark.timeout(400)]

BIN, ROOT = Path(sys.executable).parent, Path(__file__).parents[2]
TOPIC, TO = "declared", "declared-checked"
FIRST = [("anna", 1, 12.5), ("ben", 2, 7.25), ("anna", 3, 30.0)]
SECOND = [("ben", 4, 1.0), ("cleo", 5, 2.0)]


@pytest.fixture
def project(bootstrap: str, tmp_path: Path) -> Path:
    """A new one, and its topics."""
    made = CliRunner().invoke(
        command,
        [str(tmp_path / "my orders"), "--bootstrap", bootstrap, "--topic", TOPIC, "--to", TO],
    )
    assert made.exit_code == 0, made.output
    create(bootstrap, TOPIC, 2)
    create(bootstrap, TO, 2)
    return tmp_path / "my orders"


@pytest.fixture
def run(project: Path, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Runs the project; everyday in one Java machine, since starting it takes longest."""
    if SOAKING:
        yield partial(run_by_command, project)
        return
    words = [sys.executable, "-m", "tests.pipelines.declared_runs"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            words,
            cwd=project,
            env={**environment(), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        ) as runs,
    ):
        yield partial(run_once_more, runs, tmp_path / "log")
        kill_session(runs)


def test_a_second_run_adds_only_what_is_new(
    bootstrap: str, project: Path, run: Callable[[], None]
) -> None:
    send(bootstrap, TOPIC, FIRST, rubbish="two coffees, please")
    run()

    assert orders(project) == sorted(FIRST)
    assert [row["text"] for row in rows(project, "rejected")] == ["two coffees, please"]
    assert totals(project) == {"anna": (2, 42.5), "ben": (1, 7.25)}
    assert returned(bootstrap, TO) == sorted(FIRST)

    send(bootstrap, TOPIC, SECOND)
    run()

    assert len(rows(project, "bronze")) == len(FIRST) + len(SECOND) + 1
    assert orders(project) == sorted(FIRST + SECOND)
    assert len(rows(project, "rejected")) == 1
    assert totals(project) == {"anna": (2, 42.5), "ben": (2, 8.25), "cleo": (1, 2.0)}
    assert returned(bootstrap, TO) == sorted(FIRST + SECOND)


def run_by_command(project: Path) -> None:
    """As its README says."""
    done = subprocess.run(
        [BIN / "spark-pipelines", "run"],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]


def run_once_more(runs: "subprocess.Popen[bytes]", log: Path) -> None:
    assert runs.stdin is not None
    assert runs.stdout is not None
    runs.stdin.write(b"\n")
    runs.stdin.flush()
    said = b""
    while not said.endswith(b"it ran\n"):
        line = runs.stdout.readline()
        assert line, f"{said.decode()[-3_000:]}{log.read_text()[-3_000:]}"
        said += line


def environment() -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if "PYSPARK" not in name},
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "SPARK_CONF_DIR": "conf",
        "SPARK_SUBMIT_OPTS": f"{QUICK} -Dderby.system.durability=test",
        # So the session's server takes any free port.
        "SPARK_TESTING": "1",
    }


def send(
    bootstrap: str, topic: str, sent: list[tuple[str, int, float]], rubbish: str | None = None
) -> None:
    async def sending() -> None:
        async with Producer(bootstrap) as producer:
            for customer, order, amount in sent:
                value = json.dumps({"order": order, "amount": amount})
                producer.submit(topic, value, key=customer)
            if rubbish is not None:
                producer.submit(topic, rubbish, key="ben")

    asyncio.run(sending())


# --- what is there now ------------------------------------------------------------------------


def rows(project: Path, table: str) -> list[dict[str, Any]]:
    """A table as its files say."""
    files = sorted((project / "tables" / table).glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def orders(project: Path) -> list[tuple[str, int, float]]:
    silver = rows(project, "silver")
    return sorted((row["customer"], row["order"], row["amount"]) for row in silver)


def totals(project: Path) -> dict[str, tuple[int, float]]:
    return {row["customer"]: (row["orders"], row["amount"]) for row in rows(project, "gold")}


def returned(bootstrap: str, topic: str) -> list[tuple[str, int, float]]:
    """The orders that came back into the log."""
    found = []
    for message in committed(bootstrap, topic):
        assert message.key is not None
        assert message.value is not None
        order = json.loads(message.value)
        found.append((message.key.decode(), order["order"], order["amount"]))
    return sorted(found)
