"""Asks Apache Kafka what it answers, and compares that with what was recorded of it.

    python -m tests.conformance [--record]

``--record`` keeps the answers instead, for ``test_groups.py`` and ``test_transactions.py`` to hold
our broker to.  Needs Java and, the first time, Maven; Kafka comes from Maven Central as for the
benchmarks.
"""

import tempfile
from pathlib import Path

import click
from benchmarks.peers.broker import running
from benchmarks.peers.kafka import KafkaPeer

from tests.conformance import group_questions, transaction_questions
from tests.conformance.interview import Interview, address_of
from tests.conformance.record import GROUPS, TRANSACTIONS, differences, keep, recorded

_QUESTIONS = {
    GROUPS: group_questions.ask_all,
    TRANSACTIONS: transaction_questions.ask_all,
}
_OPTIONS = {**group_questions.OPTIONS, **transaction_questions.OPTIONS}
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
            for name, value in {**_OPTIONS, **_AT_ONCE}.items():
                properties.write(f"{name}={value}\n")


@click.command()
@click.option("--record", is_flag=True, help="Keep the answers as the ones to live up to.")
def main(record: bool) -> None:
    """Ask Apache Kafka every question."""
    peer = OpenKafka()
    peer.install()
    answers = {}
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(peer, Path(scratch) / "kafka", "memory") as broker,
    ):
        for name, ask_all in _QUESTIONS.items():
            with Interview(*address_of(broker.bootstrap)) as interview:
                ask_all(interview)
            answers[name] = interview.answers
    count = sum(map(len, answers.values()))
    if record:
        for name, told in answers.items():
            keep(name, str(peer.facts()["version"]), told)
        click.echo(f"recorded {count} answers")
        return
    found = [one for name, told in answers.items() for one in differences(recorded(name), told)]
    click.echo("\n".join(found) or f"{count} answers, all as recorded")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
