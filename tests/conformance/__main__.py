"""Asks Apache Kafka what it answers, and compares that with what was recorded of it.

    python -m tests.conformance [--record]

``--record`` keeps the answers instead, for ``test_groups.py`` to hold our broker to.  Needs Java
and, the first time, Maven; Kafka comes from Maven Central as for the benchmarks.
"""

import tempfile
from pathlib import Path

import click
from benchmarks.peers.broker import running
from benchmarks.peers.kafka import KafkaPeer

from tests.conformance.group_questions import OPTIONS, ask_all
from tests.conformance.interview import Interview, address_of
from tests.conformance.record import differences, keep, recorded

# Kafka puts off assignments, so that several members who come at once cost one; we need not.
_AT_ONCE = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
}


class OpenKafka(KafkaPeer):
    """Apache Kafka as it ships, with the options that the questions need."""

    def prepare(self, directory: Path, port: int, durability: str) -> None:
        super().prepare(directory, port, durability)
        with (directory / "server.properties").open("a") as properties:
            for name, value in {**OPTIONS, **_AT_ONCE}.items():
                properties.write(f"{name}={value}\n")


@click.command()
@click.option("--record", is_flag=True, help="Keep the answers as the ones to live up to.")
def main(record: bool) -> None:
    """Ask Apache Kafka every question."""
    peer = OpenKafka()
    peer.install()
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(peer, Path(scratch) / "kafka", "memory") as broker,
        Interview(*address_of(broker.bootstrap)) as interview,
    ):
        ask_all(interview)
    if record:
        keep(str(peer.facts()["version"]), interview.answers)
        click.echo(f"recorded {len(interview.answers)} answers")
        return
    found = differences(recorded(), interview.answers)
    click.echo("\n".join(found) or f"{len(interview.answers)} answers, all as recorded")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
