"""Starts a broker, lets every client and tool at it, and prints one table.

    python -m tests.compat [--only NAME ...] [--peer kafka | --bootstrap HOST:PORT]

Exit code 0 means that all passed.  A registry that cannot be reached fails only its own rows,
as ``unreachable``; a program that is not installed fails its rows as ``missing``.  ``--peer
kafka`` runs the same checks against Apache Kafka: what fails there is wrong here, in the checks.
"""

import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click
from benchmarks.peers import java
from benchmarks.peers.broker import Peer, running
from benchmarks.peers.kafka import KafkaPeer
from benchmarks.peers.waystation import WaystationPeer
from confluent_kafka import KafkaException
from rich.console import Console
from rich.table import Table

from tests.compat import clients, once, queues, shares, spark, tools, transactions, views
from tests.compat.letters import WrongAnswerError
from tests.compat.target import CACHE, MissingError, Target, UnreachableError

Check = Callable[[Target], str]

PEERS: dict[str, type[Peer]] = {"waystation": WaystationPeer, "kafka": KafkaPeer}
_COLOURS = {"pass": "green", "fail": "red", "unreachable": "yellow", "missing": "yellow"}


class Row(NamedTuple):
    """One line of the table; ``problem`` is empty where the check passed."""

    name: str
    version: str
    result: str
    seconds: float
    problem: str


def checks(only: tuple[str, ...], own_broker: bool, peer: str = "waystation") -> dict[str, Check]:
    """Name -> check, in the order of the table."""
    known: dict[str, Check] = {
        "kafkajs": clients.kafkajs,
        "java": clients.java_client,
        "franz-go": clients.franz_go,
        "sarama": clients.sarama,
        "kafkajs-groups": clients.kafkajs_groups,
        "java-groups": clients.java_groups,
        "franz-go-groups": clients.franz_go_groups,
        "sarama-groups": clients.sarama_groups,
        "kafkajs-transactions": clients.kafkajs_transactions,
        "java-transactions": clients.java_transactions,
        "franz-go-transactions": clients.franz_go_transactions,
        "sarama-transactions": clients.sarama_transactions,
        "spark-kafka": spark.connector,
        "spark-kafka-sink": spark.sink,
        **queues.CHECKS,
    }
    of_kafka = tools.TOOLS | transactions.TOOLS | shares.TOOLS
    known |= {name: _of_kafka(tool) for name, tool in of_kafka.items()}
    if peer == "waystation":  # nobody else has them
        known |= views.CHECKS | once.CHECKS
    if not own_broker:  # nobody told us where the data is
        known = {name: check for name, check in known.items() if "dump-log" not in name}
    if unknown := set(only) - known.keys():
        raise click.BadParameter(f"no such check: {', '.join(unknown)}; try {', '.join(known)}")
    return {name: check for name, check in known.items() if not only or name in only}


def _of_kafka(tool: Callable[[Target], None]) -> Check:
    def check(target: Target) -> str:
        tool(target)
        return java.KAFKA_VERSION

    return check


def attempt(name: str, check: Check, target: Target) -> Row:
    """Run one check; whatever goes wrong becomes its row."""
    started = time.monotonic()
    version, result, problem = "", "pass", ""
    try:
        version = check(target)
    except (WrongAnswerError, KafkaException) as error:
        result, problem = "fail", str(error)
    except UnreachableError as error:
        result, problem = "unreachable", str(error)
    except MissingError as error:
        result, problem = "missing", str(error)
    return Row(name, version, result, time.monotonic() - started, problem)


@contextmanager
def broker(peer: str, bootstrap: str | None) -> Iterator[Target]:
    """The broker under test: somebody else's, or a fresh one of ours."""
    with tempfile.TemporaryDirectory(prefix="compat-") as scratch:
        token = secrets.token_hex(4)
        if bootstrap is not None:
            yield Target(bootstrap, None, Path(scratch), token)
            return
        product = PEERS[peer]()
        product.install()
        data = CACHE / "data" / peer
        with running(product, data, "disk") as started:
            yield Target(started.bootstrap, data, Path(scratch), token)


def show(rows: list[Row]) -> None:
    """The table, then the problems in full."""
    console = Console()
    table = Table("client or tool", "version", "result", "seconds")
    for row in rows:
        result = f"[{_COLOURS[row.result]}]{row.result}"
        table.add_row(row.name, row.version, result, f"{row.seconds:.1f}")
    console.print(table)
    for row in rows:
        if row.problem:
            console.print(f"\n{row.name}: {row.result}", style=_COLOURS[row.result])
            console.print(row.problem, markup=False)


@click.command()
@click.option("--peer", type=click.Choice(list(PEERS)), default="waystation", show_default=True)
@click.option("--bootstrap", help="HOST:PORT of a running broker, instead of starting one.")
@click.option("--only", multiple=True, help="Run this check only; may be repeated.")
def main(peer: str, bootstrap: str | None, only: tuple[str, ...]) -> None:
    """Clients from npm, Maven Central and Go against a real broker."""
    chosen = checks(only, own_broker=bootstrap is None, peer=peer)
    console = Console(stderr=True)
    with broker(peer, bootstrap) as target, console.status("starting") as status:
        rows: list[Row] = []
        for name, check in chosen.items():
            status.update(f"{name} ({len(rows) + 1} of {len(chosen)})")
            rows.append(attempt(name, check, target))
    show(rows)
    raise SystemExit(any(row.result != "pass" for row in rows))


if __name__ == "__main__":
    main()
