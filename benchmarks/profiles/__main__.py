"""Profiles side by side: ``python -m benchmarks.profiles [--quick]``.

The same loads on a broker of each profile, one after the other, from a thousand messages a second
to as many as it takes; ``--rounds`` times, each beginning with another profile, medians count.
Figures go to ``benchmarks/results/profiles/`` and, with their picture, into
``docs/operations/profiles.md``.

Exit code 1 if latency did not have the lower p99, or throughput not more messages a second.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from benchmarks.loads import librdkafka
from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers import machine
from benchmarks.peers.broker import PeerMissingError
from benchmarks.peers.handshake import NotReadyError
from benchmarks.peers.places import CACHE, RESULTS, ROOT
from benchmarks.peers.waystation import WaystationPeer
from benchmarks.profiles.measuring import Amounts, Figures, life
from benchmarks.profiles.page import FIGURES, figures_text, margins, picture
from benchmarks.profiles.plan import PROFILES, steps
from benchmarks.report.results import fresh_directory
from benchmarks.sizing.__main__ import medians
from benchmarks.sizing.page import replaced

PAGE = ROOT / "docs" / "operations" / "profiles.md"
_FULL = Amounts(seconds=6.0, warmup_s=2.0, count=1_000_000)
_QUICK = Amounts(seconds=3.0, warmup_s=1.0, count=300_000)
_ROUNDS = 3


def main() -> int:
    """Measure or read what was measured, print, write result, page and picture."""
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
        directory = Path(given.out or fresh_directory(RESULTS / "profiles", date.today()))
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "results.json").write_text(json.dumps(result, indent=1) + "\n")
        print(f"\nwritten to {directory}")
    figures, drawn = texts(result)
    print(f"\n{figures}")
    if given.page != "none":
        page = Path(given.page)
        page.write_text(replaced(page.read_text(), FIGURES, figures))
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
    facts = machine.facts(data.parent)
    print("machine: " + ", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    if machine.busy(facts):
        print("other work runs on this machine: these figures are no figures", flush=True)
    began = time.monotonic()

    def told(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True)

    amounts = _QUICK if given.quick else _FULL
    rounds: list[dict[str, Figures]] = []
    for number in range(given.rounds):
        rounds.append({})
        first = number % len(PROFILES)
        for profile in (*PROFILES[first:], *PROFILES[:first]):
            some = steps(profile, quick=given.quick)
            rounds[-1].update(life(profile, some, amounts, data / "profiles", told))
    options = " --quick" if given.quick else ""
    return {"machine": facts, "options": options, "rounds": rounds}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiles", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of short steps: a look")
    parser.add_argument("--rounds", type=int, help=f"default {_ROUNDS}, medians count")
    parser.add_argument("--results", help="write the page from this results.json, measure nothing")
    parser.add_argument("--page", default=PAGE, help="the page to write, or none")
    parser.add_argument("--data-dir", default=CACHE / "data", help="where brokers keep their logs")
    parser.add_argument("--out", help="where results go (default benchmarks/results/profiles)")
    given = parser.parse_args()
    given.rounds = given.rounds or (1 if given.quick else _ROUNDS)
    return given


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LoadError, NotReadyError) as problem:
        sys.exit(f"profiles: {problem}")
