"""A new project of Declarative Pipelines runs as it is, and a second run adds only what is new."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.pipelines.committed import committed
from tests.spark.topics import create
from tests.support.spark_cluster import QUICK_JAVA
from waystation import Producer
from waystation.pipelines.init import command

pytestmark = [pytest.mark.alone, pytest.mark.timeout(240)]

BIN = Path(sys.executable).parent
FIRST = [("anna", 1, 12.5), ("ben", 2, 7.25), ("anna", 3, 30.0)]
SECOND = [("ben", 4, 1.0), ("cleo", 5, 2.0)]


def test_a_second_run_adds_only_what_is_new(bootstrap: str, tmp_path: Path) -> None:
    project, topic, to = tmp_path / "orders", "declared", "declared-checked"
    made = CliRunner().invoke(
        command, [str(project), "--bootstrap", bootstrap, "--topic", topic, "--to", to]
    )
    assert made.exit_code == 0, made.output
    create(bootstrap, topic, 2)
    create(bootstrap, to, 2)

    send(bootstrap, topic, FIRST, rubbish="two coffees, please")
    run(project)

    assert orders(project) == sorted(FIRST)
    assert [row["text"] for row in rows(project, "rejected")] == ["two coffees, please"]
    assert totals(project) == {"anna": (2, 42.5), "ben": (1, 7.25)}
    assert returned(bootstrap, to) == sorted(FIRST)

    send(bootstrap, topic, SECOND)
    run(project)

    assert len(rows(project, "bronze")) == len(FIRST) + len(SECOND) + 1
    assert orders(project) == sorted(FIRST + SECOND)
    assert len(rows(project, "rejected")) == 1
    assert totals(project) == {"anna": (2, 42.5), "ben": (2, 8.25), "cleo": (1, 2.0)}
    assert returned(bootstrap, to) == sorted(FIRST + SECOND)


def run(project: Path) -> None:
    """As its README says, from a folder below it."""
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "SPARK_CONF_DIR": "conf",
        "SPARK_SUBMIT_OPTS": f"{QUICK_JAVA} -Dderby.system.durability=test",
    }
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment.pop(name, None)
    done = subprocess.run(
        [BIN / "spark-pipelines", "run"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]


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
