"""The frame of a benchmark that writes what it measured into a page of the documentation.

It measures rounds, or reads a ``results.json`` of before; medians of all rounds count.  Results go
to a fresh folder in ``benchmarks/results``, texts into the blocks of the page that are theirs.
``benchmarks/sizing`` and ``benchmarks/profiles`` are of this kind.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers import machine
from benchmarks.peers.broker import PeerMissingError
from benchmarks.peers.handshake import NotReadyError
from benchmarks.peers.places import CACHE, RESULTS
from benchmarks.report.results import fresh_directory

Figures = Mapping[str, float]
Tell = Callable[[str], None]
Measure = Callable[[argparse.Namespace], dict[str, object]]

ROUNDS = 3


def parser(name: str, page: Path, description: str | None) -> argparse.ArgumentParser:
    """What all of them take; ``given`` makes the rest of it."""
    made = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    made.add_argument("--quick", action="store_true", help="one round of short steps: a look")
    made.add_argument("--rounds", type=int, help=f"default {ROUNDS}, medians count")
    made.add_argument("--results", help="write the page from this results.json, measure nothing")
    made.add_argument("--page", default=page, help="the page to write, or none")
    made.add_argument("--data-dir", default=CACHE / "data", help="where brokers keep their logs")
    made.add_argument("--out", help=f"where results go (default benchmarks/results/{name})")
    return made


def given(made: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments, with the number of rounds that they mean."""
    arguments = made.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.quick else ROUNDS)
    return arguments


def result_of(name: str, arguments: argparse.Namespace, measure: Measure) -> Any:  # as JSON has it
    """What was measured, now or before; what is measured now is written down first."""
    if arguments.results:
        return json.loads(Path(arguments.results).read_text())
    result = measure(arguments)
    directory = Path(arguments.out or fresh_directory(RESULTS / name, date.today()))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nwritten to {directory}")
    return result


def begin(data_dir: Path) -> tuple[dict[str, object], Tell]:
    """Say on what it is measured; the facts, and how to tell of each step."""
    facts = machine.facts(data_dir.resolve().parent)
    print("machine: " + ", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    if machine.busy(facts):
        print("other work runs on this machine: these figures are no figures", flush=True)
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True)

    return facts, tell


def medians(rounds: Sequence[Mapping[str, Figures]]) -> dict[str, dict[str, float]]:
    """One figure for each metric of each step."""
    names = dict.fromkeys(name for one in rounds for name in one)
    return {name: _medians([one[name] for one in rounds if name in one]) for name in names}


def _medians(runs: Sequence[Figures]) -> dict[str, float]:
    return {metric: statistics.median(run[metric] for run in runs) for metric in runs[0]}


def replaced(page: str, name: str, body: str) -> str:
    """The page with the body of one block exchanged."""
    block = re.compile(rf"(<!-- {name}:[^>]*-->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    if len(block.findall(page)) != 1:
        raise ValueError(f"the page has no block {name}, or several")
    return block.sub(lambda found: f"{found[1]}\n{body.strip()}\n\n{found[2]}", page)


def write(page: Path, blocks: Mapping[str, str]) -> None:
    """Exchange these blocks of a page."""
    text = page.read_text()
    for name, body in blocks.items():
        text = replaced(text, name, body)
    page.write_text(text)


def run(name: str, main: Callable[[], int]) -> None:
    """End the process as ``main`` says, or with what kept it from measuring."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except PeerMissingError as error:
        print(f"nothing to measure: {error}", file=sys.stderr)
        sys.exit(2)
    except (LoadError, NotReadyError) as problem:
        sys.exit(f"{name}: {problem}")
