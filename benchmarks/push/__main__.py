"""``python -m benchmarks.push``: 1,000 subscribers with 10 messages a second each.

Waystation's events and WebSockets beside RabbitMQ's and NATS's own push, one product on the machine
at a time, each load in a life of its own.  Latency counts from when a message was due to be
published to when its bytes were read by a subscriber, so that publishing is part of it; Waystation
has then stored and synced the message, RabbitMQ and NATS as measured here have not.

Exit code 0 when every load ran, 1 when one failed or a promise was not kept.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import defaultdict
from datetime import date
from pathlib import Path

from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers import machine
from benchmarks.peers.broker import PeerMissingError
from benchmarks.peers.handshake import NotReadyError
from benchmarks.peers.nats import NatsPeer
from benchmarks.peers.places import CACHE, RESULTS
from benchmarks.peers.rabbitmq import RabbitmqPeer
from benchmarks.peers.waystation import WaystationPeer
from benchmarks.progress import Steps
from benchmarks.push.measuring import Figures, measure
from benchmarks.push.rows import PER_SECOND, WAYS, Scenario, Way
from benchmarks.push.table import falls_short, render
from benchmarks.report.results import fresh_directory

_RESULTS = RESULTS / "push"


def main() -> int:
    """Install, run, report."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so no broker is left
    given = _arguments()
    facts = _installed(given.peers.split(","))
    loads = [
        (scenario, way)
        for way in WAYS
        if way.peer in facts and (not given.by or way.dialect in given.by.split(","))
        for scenario in way.scenarios
        if given.only in scenario.name
    ]
    rounds: dict[tuple[Scenario, Way], list[Figures]] = defaultdict(list)
    heading = _heading(machine.facts(Path(given.data_dir).resolve().parent), facts, given)
    print(heading, flush=True)
    failed = _run(given, loads, rounds)
    short = falls_short(rounds)
    text = "\n".join([render(rounds), "", *(f"falls short: {one}" for one in short)])
    print(f"\n{text}", flush=True)
    if given.out or not given.quick:
        _write(given, heading, text, rounds, failed)
    return 1 if failed or short else 0


def _run(
    given: argparse.Namespace,
    loads: list[tuple[Scenario, Way]],
    rounds: dict[tuple[Scenario, Way], list[Figures]],
) -> list[str]:
    failed = []
    with Steps(len(loads) * given.rounds) as steps:
        for number in range(given.rounds):
            for scenario, way in loads if number % 2 == 0 else reversed(loads):
                steps.step(f"{way.peer} by {way.dialect}: {scenario.name}")
                directory = Path(given.data_dir).resolve() / "push"
                try:
                    figures = measure(
                        way, scenario, directory, given.part, given.rate, given.seconds
                    )
                except (LoadError, NotReadyError, OSError) as error:
                    failed.append(f"{scenario.name}, {way.peer} by {way.dialect}: {error}")
                    print(f"FAILED: {failed[-1]}", flush=True)
                    continue
                rounds[scenario, way].append(figures)
    return failed


def _installed(names: list[str]) -> dict[str, dict[str, object]]:
    """The products that can run here and their facts; of the others, why not."""
    known: dict[str, WaystationPeer | RabbitmqPeer | NatsPeer] = {
        "waystation": WaystationPeer(),
        "rabbitmq": RabbitmqPeer(),
        "nats": NatsPeer(),
    }
    facts: dict[str, dict[str, object]] = {}
    for name in names:
        if name not in known:
            raise SystemExit(f"unknown peer {name}: choose from {', '.join(known)}")
        try:
            known[name].install()
            facts[name] = known[name].facts()
        except PeerMissingError as error:
            print(f"{name} is not measured: {error}", flush=True)
    return facts


def _heading(
    host: dict[str, object], peers: dict[str, dict[str, object]], given: argparse.Namespace
) -> str:
    versions = ", ".join(f"{peer} {told['version']}" for peer, told in peers.items())
    return "\n".join(
        [
            "machine: " + ", ".join(f"{name} {value}" for name, value in host.items()),
            f"products: {versions}",
            f"each subscriber is sent {given.rate} messages/s of 200 bytes, for {given.seconds} s "
            f"after a warm-up; medians of {given.rounds} rounds"
            + (f"; {given.part:.0%} of the subscribers" if given.part < 1 else ""),
        ]
    )


def _write(
    given: argparse.Namespace,
    heading: str,
    text: str,
    rounds: dict[tuple[Scenario, Way], list[Figures]],
    failed: list[str],
) -> None:
    directory = Path(given.out) if given.out else fresh_directory(_RESULTS, date.today())
    directory.mkdir(parents=True, exist_ok=True)
    told = [
        {"scenario": scenario.name, "peer": way.peer, "by": way.dialect, "rounds": figures}
        for (scenario, way), figures in rounds.items()
    ]
    result = {"heading": heading.splitlines(), "loads": told, "failed": failed}
    (directory / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    (directory / "table.txt").write_text(f"{heading}\n\n{text}\n")
    print(f"written to {directory}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.push", description=__doc__)
    parser.add_argument("--rounds", type=int, help="lives of each load (default 3, quick 1)")
    parser.add_argument("--seconds", type=int, help="of each load, after warm-up (10, quick 5)")
    parser.add_argument("--part", type=float, default=1.0, help="of the subscribers: 0.1")
    parser.add_argument("--rate", type=int, default=PER_SECOND, help="messages/s to each of them")
    parser.add_argument("--quick", action="store_true", help="one short round, no file")
    parser.add_argument("--peers", default="waystation,rabbitmq,nats")
    parser.add_argument("--by", help="only these: " + ", ".join(way.dialect for way in WAYS))
    parser.add_argument("--only", default="", help="only scenarios with this in their name")
    parser.add_argument("--data-dir", default=CACHE / "data", help="where brokers keep their logs")
    parser.add_argument("--out", help="a directory for the result, instead of a dated one")
    given = parser.parse_args()
    given.rounds = given.rounds or (1 if given.quick else 3)
    given.seconds = given.seconds or (5 if given.quick else 10)
    return given


if __name__ == "__main__":
    sys.exit(main())
