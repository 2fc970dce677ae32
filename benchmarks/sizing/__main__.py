"""How a cluster grows: ``python -m benchmarks.sizing [--quick] [--only partitions]``.

Producers, consumers, brokers, replicas and partitions are made more, one of them at a time, on this
machine.  Figures go to ``benchmarks/results/sizing/`` and, with what a cluster for a million
messages a second takes by them, into ``docs/operations/sizing.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.loads import librdkafka
from benchmarks.peers.cluster import running_cluster
from benchmarks.peers.places import ROOT
from benchmarks.peers.waystation_cluster import WaystationCluster
from benchmarks.report import measured_page
from benchmarks.report.measured_page import medians
from benchmarks.sizing.measuring import Figures, Measuring
from benchmarks.sizing.page import FIGURES, PLAN, figures_text, plan_text
from benchmarks.sizing.steps import STEPS, Step

NAME = "sizing"
PAGE = ROOT / "docs" / "operations" / "sizing.md"
_COUNT, _QUICK_COUNT = 500_000, 60_000


def main() -> int:
    """Measure or read what was measured, print, write result and page."""
    given = _arguments()
    result = measured_page.result_of(NAME, given, _measure)
    figures, plans = texts(result)
    print(f"\n{figures}\n{plans}")
    if given.page != "none":
        measured_page.write(Path(given.page), {FIGURES: figures, PLAN: plans})
    return 0


def texts(result: Mapping[str, dict[str, object]]) -> tuple[str, str]:
    """Both blocks of the page, from a result as it is stored."""
    measured = medians(result["rounds"])  # type: ignore[arg-type]
    return figures_text(measured, result["machine"], str(result["options"])), plan_text(measured)


def _measure(given: argparse.Namespace) -> dict[str, object]:
    librdkafka.build()
    WaystationCluster().install()
    facts, tell = measured_page.begin(Path(given.data_dir))
    steps = [s for s in STEPS if not given.only or s.dimension in given.only]
    rounds: list[dict[str, Figures]] = []
    for _ in range(given.rounds):
        rounds.append({})
        for brokers in sorted({s.brokers for s in steps}, reverse=True):
            some = [s for s in steps if s.brokers == brokers]
            rounds[-1].update(_life(brokers, some, given, tell))
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
    parser = measured_page.parser(NAME, PAGE, __doc__)
    parser.add_argument("--only", action="append", default=[], metavar="DIMENSION")
    parser.add_argument("--count", type=int, help=f"messages of a step (default {_COUNT:,})")
    parser.add_argument("--durability", choices=("memory", "disk"), default="disk")
    given = measured_page.given(parser)
    dimensions = {step.dimension for step in STEPS}
    if unknown := set(given.only) - dimensions:
        parser.error(f"no dimension {unknown.pop()}: there are {', '.join(sorted(dimensions))}")
    if given.only and given.page == PAGE:
        given.page = "none"  # a page of a part would lack the rest
    given.count = given.count or (_QUICK_COUNT if given.quick else _COUNT)
    return given


if __name__ == "__main__":
    measured_page.run(NAME, main)
