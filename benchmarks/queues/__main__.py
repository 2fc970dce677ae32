"""``python -m benchmarks.queues``: one queue under load, ours, RabbitMQ's and Kafka's in turn.

Every round runs one life of each product, one after the other, and takes ratios within it; the
median counts.  RabbitMQ's quorum queues sync to disk before they confirm and stand beside ours with
``durability=disk``, Kafka's share groups do not and stand beside ours with ``durability=memory``.

Exit code 0 when every load ran, 1 when one failed, 2 when there was nothing to measure.  Falling
short of a requirement is a result, not an error.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from datetime import date
from pathlib import Path

import confluent_kafka

from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers import machine
from benchmarks.peers.broker import PeerMissingError
from benchmarks.peers.handshake import NotReadyError
from benchmarks.peers.kafka import KafkaPeer
from benchmarks.peers.places import CACHE, RESULTS
from benchmarks.peers.rabbitmq import RabbitmqPeer
from benchmarks.peers.waystation import WaystationPeer
from benchmarks.progress import Steps
from benchmarks.queues.measuring import (
    ACK_EVERY,
    CONFIRMS,
    ON_THEIR_WAY,
    PERF_TEST_VERSION,
    PREFETCH,
    Rows,
    Times,
    fetch_perf_test,
    measure,
    steps_in,
)
from benchmarks.queues.rows import KAFKA, RABBITMQ, WAYSTATION, Life, chosen
from benchmarks.queues.table import render
from benchmarks.report.results import fresh_directory

_QUICK = Times(seconds=3.0, warmup_s=2.0, life_warmup_s=4.0)


def main() -> int:
    """Install, run, report."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so no broker is left
    given = _arguments()
    facts = _installed(tuple(given.peers.split(",")))
    lives = chosen(tuple(facts), quick=given.quick)
    if not lives:
        print("nothing to measure: no broker can be started", file=sys.stderr)
        return 2
    data = Path(given.data_dir).resolve()
    result: dict[str, object] = {"machine": machine.facts(data.parent), "peers": facts}
    print(_heading(result), flush=True)
    rounds: list[dict[str, Rows]] = []
    failed = _run(given, lives, data, rounds)
    text = render(rounds)
    print(f"\n{text}", flush=True)
    if given.out or not given.quick:
        directory = Path(given.out) if given.out else fresh_directory(_RESULTS, date.today())
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "results.json").write_text(
            json.dumps({**result, "rounds": rounds, "failed": failed}, indent=1) + "\n"
        )
        (directory / "table.txt").write_text(f"{_heading(result)}\n\n{text}\n")
        print(f"written to {directory}", flush=True)
    return 1 if failed else 0


_RESULTS = RESULTS / "queues"


def _run(
    given: argparse.Namespace, lives: list[Life], data: Path, rounds: list[dict[str, Rows]]
) -> list[str]:
    """Round by round, every second one in the opposite order; what failed."""
    times = _QUICK if given.quick else Times(given.seconds)
    failed = []
    with Steps(sum(map(steps_in, lives)) * given.rounds) as steps:
        for number in range(given.rounds):
            figures: dict[str, Rows] = {life.peer: {} for life in lives}
            rounds.append(figures)
            for life in lives if number % 2 == 0 else reversed(lives):
                try:
                    figures[life.peer] |= measure(life, data, times, steps.step)
                except (LoadError, NotReadyError) as error:
                    failed.append(f"{life.peer}, {life.durability}: {error}")
                    print(f"FAILED: {failed[-1]}", flush=True)
    return failed


def _installed(names: tuple[str, ...]) -> dict[str, dict[str, object]]:
    """The products that can run here and their facts; of the others, why not."""
    known: dict[str, WaystationPeer | RabbitmqPeer | KafkaPeer] = {
        WAYSTATION: WaystationPeer(),
        RABBITMQ: RabbitmqPeer(),
        KAFKA: KafkaPeer(),
    }
    facts: dict[str, dict[str, object]] = {}
    for name in names:
        if name not in known:
            raise SystemExit(f"unknown peer {name}: choose from {', '.join(known)}")
        try:
            known[name].install()
            if name == RABBITMQ:
                fetch_perf_test()
            facts[name] = {**known[name].facts(), "load": _load_of(name)}
        except PeerMissingError as error:
            print(f"{name} is not measured: {error}", flush=True)
    return facts


def _load_of(name: str) -> str:
    if name == RABBITMQ:
        return (
            f"PerfTest {PERF_TEST_VERSION}, one durable quorum queue, 1 producer with up to "
            f"{CONFIRMS:,} unconfirmed, 4 consumers, prefetch {PREFETCH:,}, manual acknowledgement "
            f"of {ACK_EVERY} at a time"
        )
    return (
        f"confluent-kafka {confluent_kafka.version()} with its defaults, 1 producer with acks=all "
        f"and up to {ON_THEIR_WAY:,} unacknowledged, 4 share consumers"
    )


def _heading(result: dict[str, object]) -> str:
    facts, peers = result["machine"], result["peers"]
    assert isinstance(facts, dict)
    assert isinstance(peers, dict)
    lines = ["machine: " + ", ".join(f"{name} {value}" for name, value in facts.items())]
    for peer, told in peers.items():
        lines += [f"{peer}:", *(f"  {name}: {told[name]}" for name in told if name != "settings")]
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queues", description=__doc__)
    parser.add_argument("--rounds", type=int, help="lives of each product (default 3, quick 1)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each load, after warm-up")
    parser.add_argument("--quick", action="store_true", help="a look of a minute or two, no file")
    parser.add_argument("--peers", default=f"{WAYSTATION},{RABBITMQ},{KAFKA}")
    parser.add_argument("--data-dir", default=CACHE / "data", help="where brokers keep their logs")
    parser.add_argument("--out", help="a directory for the result, instead of a dated one")
    given = parser.parse_args()
    given.rounds = given.rounds or (1 if given.quick else 3)
    return given


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LoadError as problem:
        sys.exit(f"bench: {problem}")
