"""How a cluster grows: ``python -m benchmarks.sizing [--quick] [--only partitions]``.

Producers, consumers, brokers, replicas and partitions are made more, one of them at a time, on this
machine.  Figures go to ``benchmarks/results/sizing/`` and, with what a cluster for a million
messages a second takes by them, into ``docs/operations/sizing.md``.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path

from benchmarks.loads import librdkafka
from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers import machine
from benchmarks.peers.broker import PeerMissingError
from benchmarks.peers.cluster import running_cluster
from benchmarks.peers.handshake import NotReadyError
from benchmarks.peers.places import CACHE, RESULTS, ROOT
from benchmarks.peers.waystation_cluster import WaystationCluster
from benchmarks.report.results import fresh_directory
from benchmarks.sizing.measuring import Figures, Measuring
from benchmarks.sizing.page import FIGURES, PLAN, figures_text, plan_text, replaced
from benchmarks.sizing.steps import STEPS, Step

PAGE = ROOT / "docs" / "operations" / "sizing.md"
_COUNT, _QUICK_COUNT = 500_000, 60_000
_ROUNDS = 3


def main() -> int:
    """Measure or read what was measured, print, write result and page."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given = _arguments()
    if given.results:
        result = json.loads(Path(given.results).read_text())
    else:
        try:
            result = _measure(given)
        except PeerMissingError as error:
            print(f"nothing to measure: {error}", file=sys.stderr)
            return 2
        directory = Path(given.out or fresh_directory(RESULTS / "sizing", date.today()))
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "results.json").write_text(json.dumps(result, indent=1) + "\n")
        print(f"\nwritten to {directory}")
    figures, plans = texts(result)
    print(f"\n{figures}\n{plans}")
    if given.page != "none":
        page = Path(given.page)
        text = replaced(replaced(page.read_text(), FIGURES, figures), PLAN, plans)
        page.write_text(text)
    return 0


def texts(result: Mapping[str, dict[str, object]]) -> tuple[str, str]:
    """Both blocks of the page, from a result as it is stored."""
    measured = medians(result["rounds"])  # type: ignore[arg-type]
    return figures_text(measured, result["machine"], str(result["options"])), plan_text(measured)


def medians(rounds: Sequence[Mapping[str, Figures]]) -> dict[str, Figures]:
    """One figure for each metric of each step."""
    names = dict.fromkeys(name for one in rounds for name in one)
    return {name: _medians([one[name] for one in rounds if name in one]) for name in names}


def _medians(runs: Sequence[Figures]) -> Figures:
    return {metric: statistics.median(run[metric] for run in runs) for metric in runs[0]}


def _measure(given: argparse.Namespace) -> dict[str, object]:
    librdkafka.build()
    WaystationCluster().install()
    facts = machine.facts(Path(given.data_dir).resolve().parent)
    print("machine: " + ", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    if machine.busy(facts):
        print("other work runs on this machine: these figures are no figures", flush=True)
    began = time.monotonic()

    def step(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True)

    steps = [s for s in STEPS if not given.only or s.dimension in given.only]
    rounds: list[dict[str, Figures]] = []
    for _ in range(given.rounds):
        rounds.append({})
        for brokers in sorted({s.brokers for s in steps}, reverse=True):
            some = [s for s in steps if s.brokers == brokers]
            rounds[-1].update(_life(brokers, some, given, step))
    options = "".join(f" --{name}" for name in ("quick",) if getattr(given, name))
    options += f" --durability {given.durability}" if given.durability != "disk" else ""
    return {"machine": facts, "options": options, "count": given.count, "rounds": rounds}


def _life(
    brokers: int, steps: list[Step], given: argparse.Namespace, step: Callable[[str], None]
) -> dict[str, Figures]:
    """All steps of one cluster."""
    directory = Path(given.data_dir).resolve() / "sizing"
    with running_cluster(WaystationCluster(brokers), directory, given.durability) as cluster:
        measuring = Measuring(cluster, given.count, step)
        measuring.warm_up(Step("brokers", "produce", brokers=brokers, replicas=min(3, brokers)))
        return {one.name: measuring.measure(one) for one in steps}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sizing", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of short steps: a look")
    parser.add_argument("--only", action="append", default=[], metavar="DIMENSION")
    parser.add_argument("--rounds", type=int, help=f"default {_ROUNDS}, medians count")
    parser.add_argument("--count", type=int, help=f"messages of a step (default {_COUNT:,})")
    parser.add_argument("--durability", choices=("memory", "disk"), default="disk")
    parser.add_argument("--results", help="write the page from this results.json, measure nothing")
    parser.add_argument("--page", default=PAGE, help="the page to write, or none")
    parser.add_argument("--data-dir", default=CACHE / "data", help="where brokers keep their logs")
    parser.add_argument("--out", help="where results go (default benchmarks/results/sizing)")
    given = parser.parse_args()
    dimensions = {step.dimension for step in STEPS}
    if unknown := set(given.only) - dimensions:
        parser.error(f"no dimension {unknown.pop()}: there are {', '.join(sorted(dimensions))}")
    if given.only and given.page == PAGE:
        given.page = "none"  # a page of a part would lack the rest
    given.rounds = given.rounds or (1 if given.quick else _ROUNDS)
    given.count = given.count or (_QUICK_COUNT if given.quick else _COUNT)
    return given


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LoadError, NotReadyError) as problem:
        sys.exit(f"sizing: {problem}")
