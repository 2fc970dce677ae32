"""``python -m benchmarks``: the same loads on Waystation and Apache Kafka, side by side.

Exit code 0 when every load ran, 1 when one failed, 2 when there was nothing to measure.
Falling short of a requirement is a result, not an error.
"""

from __future__ import annotations

import argparse
import signal
import sys
from datetime import date
from pathlib import Path

from benchmarks.loads import catalog, java_tools, librdkafka
from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers import machine
from benchmarks.peers.broker import Peer, PeerMissingError
from benchmarks.peers.clusters import cluster_of
from benchmarks.peers.kafka import KafkaPeer
from benchmarks.peers.places import CACHE, RESULTS
from benchmarks.peers.waystation import WaystationPeer
from benchmarks.progress import Steps
from benchmarks.report.results import Result, fresh_directory
from benchmarks.runner import run_pair, steps_in

_QUICK_FACTOR = 0.2


def main() -> int:
    """Install, build, run, report."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so no broker is left
    arguments = _arguments()
    scenarios = catalog.chosen(tuple(arguments.only), arguments.scale)
    peers = _installed(arguments.peers)
    if not scenarios or not peers:
        print("nothing to measure: no such row, or no broker can be started", file=sys.stderr)
        return 2
    if any(load.kind.value.startswith(("java", "Consumer")) for s in scenarios for load in s.loads):
        scenarios = _with_java(scenarios)
    if any(scenario.brokers > 1 for scenario in scenarios):
        scenarios = _with_clusters(scenarios, peers)
    librdkafka.build()
    data = Path(arguments.data_dir).resolve()
    result = Result(
        machine.facts(data.parent),
        {peer.name: _facts(peer, scenarios) for peer in peers},
        {"pairs": arguments.pairs, "scale": arguments.scale, "only": arguments.only},
    )
    print(result.heading(), flush=True)
    if machine.busy(result.machine):
        print("other work runs on this machine: trust ratios, not absolute figures", flush=True)
    directory = Path(arguments.out) if arguments.out else fresh_directory(RESULTS, date.today())
    try:
        with Steps(steps_in(scenarios, peers, arguments.pairs)) as steps:
            for number in range(arguments.pairs):
                run_pair(number, scenarios, peers, data, result, steps.step)
                result.write(directory)
    except KeyboardInterrupt:
        print("interrupted: reporting what was measured", flush=True)
        result.write(directory)
    print(f"\n{result.text()}\n\nwritten to {directory}", flush=True)
    return 1 if any(note.startswith("FAILED") for note in result.notes.values()) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--pairs", type=int, help="alternating pairs (default 7, quick 1)")
    parser.add_argument("--quick", action="store_true", help="one pair of shorter loads")
    parser.add_argument("--scale", type=float, help="factor on counts and durations")
    parser.add_argument(
        "--only", action="append", default=[], metavar="ROW", help="rows or scenarios, by substring"
    )
    parser.add_argument("--peers", default="waystation,kafka", help="which brokers, in this order")
    parser.add_argument("--data-dir", default=CACHE / "data", help="where brokers keep their logs")
    parser.add_argument("--out", help="where results go (default benchmarks/results/<date>)")
    parser.add_argument("--list", action="store_true", help="print scenarios and rows, run nothing")
    arguments = parser.parse_args()
    if arguments.list:
        _list()
    arguments.pairs = arguments.pairs or (1 if arguments.quick else 7)
    arguments.scale = arguments.scale or (_QUICK_FACTOR if arguments.quick else 1.0)
    return arguments


def _list() -> None:
    for scenario in catalog.SCENARIOS:
        brokers = f", {scenario.brokers} brokers" if scenario.brokers > 1 else ""
        print(f"{scenario.name} (durability={scenario.durability}{brokers})")
        for load in scenario.loads:
            print(f"  {load.name}")
    raise SystemExit(0)


def _installed(names: str) -> list[Peer]:
    """The peers that can run here; the others are named with the reason."""
    known: dict[str, Peer] = {"waystation": WaystationPeer(), "kafka": KafkaPeer()}
    peers = []
    for name in names.split(","):
        if name not in known:
            raise SystemExit(f"unknown peer {name}: choose from {', '.join(known)}")
        try:
            known[name].install()
            peers.append(known[name])
        except PeerMissingError as error:
            print(f"{name} is not measured: {error}", flush=True)
    return peers


def _facts(peer: Peer, scenarios: list[catalog.Scenario]) -> dict[str, object]:
    """What is said about a product above the table; of its cluster only if there is one."""
    sizes = {scenario.brokers for scenario in scenarios} - {1}
    clusters = {f"cluster of {n}": cluster_of(peer.name, n).facts() for n in sorted(sizes)}
    return {**peer.facts(), **clusters}


def _with_clusters(scenarios: list[catalog.Scenario], peers: list[Peer]) -> list[catalog.Scenario]:
    """The scenarios, without those of clusters where these cannot be had."""
    try:
        for peer in peers:
            cluster_of(peer.name).install()
    except PeerMissingError as error:
        print(f"clusters are not measured: {error}", flush=True)
        return [scenario for scenario in scenarios if scenario.brokers == 1]
    return scenarios


def _with_java(scenarios: list[catalog.Scenario]) -> list[catalog.Scenario]:
    """The scenarios, without those of Java clients where these cannot be had."""
    try:
        KafkaPeer().install()
        java_tools.build()
    except (PeerMissingError, LoadError) as error:
        print(f"Java clients are not measured: {error}", flush=True)
        return [scenario for scenario in scenarios if scenario.name != "java-clients"]
    return scenarios


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LoadError as problem:
        sys.exit(f"bench: {problem}")
