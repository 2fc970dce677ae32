"""Profiles side by side: ``python -m benchmarks.profiles [--quick]``.

The same loads on a broker of each profile, one after the other, from a thousand messages a second
to as many as it takes; ``--rounds`` times, each beginning with another profile, medians count.
Figures go to ``benchmarks/results/profiles/`` and, with their picture, into
``docs/operations/profiles.md``.

Exit code 1 if latency did not have the lower p99, or throughput not more messages a second.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from benchmarks.loads import librdkafka
from benchmarks.peers.places import ROOT
from benchmarks.peers.waystation import WaystationPeer
from benchmarks.profiles.measuring import Amounts, Figures, life
from benchmarks.profiles.page import FIGURES, figures_text, margins, picture
from benchmarks.profiles.plan import PROFILES, steps
from benchmarks.report import measured_page
from benchmarks.report.measured_page import medians

NAME = "profiles"
PAGE = ROOT / "docs" / "operations" / "profiles.md"
_FULL = Amounts(seconds=6.0, warmup_s=2.0, count=1_000_000)
_QUICK = Amounts(seconds=3.0, warmup_s=1.0, count=300_000)


def main() -> int:
    """Measure or read what was measured, print, write result, page and picture."""
    given = measured_page.given(measured_page.parser(NAME, PAGE, __doc__))
    result = measured_page.result_of(NAME, given, _measure)
    figures, drawn = texts(result)
    print(f"\n{figures}")
    if given.page != "none":
        page = Path(given.page)
        measured_page.write(page, {FIGURES: figures})
        page.with_suffix(".svg").write_text(drawn)
    return 0 if min(margins(medians(result["rounds"]))) > 1 else 1


def texts(result: Mapping[str, object]) -> tuple[str, str]:
    """The block of the page and its picture, from a result as it is stored."""
    measured = medians(result["rounds"])  # type: ignore[arg-type]  # as JSON has it
    facts = result["machine"]
    assert isinstance(facts, dict), f"{facts!r} says nothing of a machine"
    return figures_text(measured, facts, str(result["options"])), picture(measured)


def _measure(given: argparse.Namespace) -> dict[str, object]:
    librdkafka.build()
    WaystationPeer().install()
    data = Path(given.data_dir).resolve()
    facts, tell = measured_page.begin(data)
    amounts = _QUICK if given.quick else _FULL
    rounds: list[dict[str, Figures]] = []
    for number in range(given.rounds):
        rounds.append({})
        first = number % len(PROFILES)
        for profile in (*PROFILES[first:], *PROFILES[:first]):
            some = steps(profile, quick=given.quick)
            rounds[-1].update(life(profile, some, amounts, data / NAME, tell))
    options = " --quick" if given.quick else ""
    return {"machine": facts, "options": options, "rounds": rounds}


if __name__ == "__main__":
    measured_page.run(NAME, main)
