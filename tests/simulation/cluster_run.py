"""Lives of a cluster, one seed after the other: ``python -m tests.simulation.cluster_run 0-99``.

Each piece of work runs in a process of its own with ``PYTHONHASHSEED=0``: a set of names has
another order otherwise, and with it the run.  What fails is told with its story, and the next seed
is tried all the same.  With ``--remember`` seeds that fail join those in ``regressions.txt``, which
the tests always run.
"""

import argparse
import gc
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.simulation.cluster_bugs import BUGS
from tests.simulation.cluster_life import ClusterLife, Luck, Outcome
from waystation.telemetry.logs import configure

REGRESSIONS = Path(__file__).with_name("regressions.txt")
_ROOT = Path(__file__).parent.parent.parent
_SEEDS_PER_PROCESS = 20


class Tally(NamedTuple):
    """What many lives were like."""

    good: int
    failed: tuple[int, ...]
    events: int
    elections: int
    acknowledged: int
    said: str


def seeds_of(text: str) -> list[int]:
    """``0-99`` or ``3,17,40-42``."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def remembered() -> list[int]:
    """The seeds that failed once."""
    lines = REGRESSIONS.read_text().splitlines() if REGRESSIONS.exists() else []
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


# --- in one process -------------------------------------------------------------------------------


def live(seed: int, luck: Luck | None = None) -> Outcome:
    """One life, of which nothing is left that could meddle with the next one.

    What waits for ever on a machine without power must not be woken by the collector of garbage.
    """
    gc.disable()
    sys.unraisablehook = _ignored
    life = ClusterLife(seed, luck)
    try:
        return life.run()
    finally:
        life.world.end()
        del life
        gc.collect()


def live_all(seeds: Iterable[int]) -> int:
    """One after the other, each told in a line; how many went wrong."""
    wrong = 0
    for seed in seeds:
        began = time.perf_counter()
        try:
            outcome = live(seed)
        except Exception as error:  # the outermost frame of a life
            wrong += 1
            _print(f"seed {seed} FAILED: {error}")
            _print("".join(traceback.format_exception(error)))
            continue
        verdict, took_s = outcome.verdict, time.perf_counter() - began
        _print(
            f"seed {seed}: good, {outcome.events} events, {outcome.elections} elections, "
            f"{verdict.acknowledged} of {verdict.writes} acknowledged, {verdict.reads} reads, "
            f"{verdict.committed}/{verdict.aborted} transactions, settled in "
            f"{outcome.settled_ms:.0f} ms; {took_s:.2f} s"
        )
    return wrong


def find(bug: str, seeds: Iterable[int]) -> int:
    """Plant a bug and look for it, in storms that suit it; 0 if it was found."""
    planted = BUGS[bug]
    for seed in seeds:
        luck = Luck.of(Random(seed))._replace(blows=planted.blows, every_ms=500, memory=False)
        if planted.thread_s is not None:
            luck = luck._replace(thread_s=planted.thread_s)
        try:
            with planted.plant():
                live(seed, luck)
        except Exception as error:  # whatever it is, something was found
            _print(f"seed {seed} found it: {str(error)[:300]}")
            return 0
    _print(f"not found: {bug}")
    return 1


def _ignored(_: object) -> None:
    """Coroutines of a world that has ended cannot clean up."""


# --- in many --------------------------------------------------------------------------------------


def run(seeds: Sequence[int], workers: int = 1, echo: bool = False) -> Tally:
    """Live all of these, a few in each process."""
    pieces = [
        seeds[at : at + _SEEDS_PER_PROCESS] for at in range(0, len(seeds), _SEEDS_PER_PROCESS)
    ]
    with ThreadPoolExecutor(workers) as pool:
        told = list(pool.map(lambda piece: _run_piece(piece, echo), pieces))
    lines = [line for one in told for line in one.splitlines() if line.startswith("seed ")]
    good = [line.replace(",", "").split() for line in lines if ": good," in line]
    done = {int(words[1].rstrip(":")) for words in good}
    return Tally(
        good=len(good),
        failed=tuple(seed for seed in seeds if seed not in done),
        events=sum(int(words[3]) for words in good),
        elections=sum(int(words[5]) for words in good),
        acknowledged=sum(int(words[7]) for words in good),
        said="".join(told),
    )


def _run_piece(seeds: Sequence[int], echo: bool) -> str:
    command = [sys.executable, "-m", "tests.simulation.cluster_run", "--here"]
    ended = subprocess.run(
        [*command, ",".join(map(str, seeds))],
        cwd=_ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if echo:
        _print(ended.stdout.rstrip())
    return ended.stdout


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=seeds_of)
    parser.add_argument("--workers", type=int, default=1, help="processes at a time")
    parser.add_argument("--here", action="store_true", help="in this process")
    parser.add_argument("--bug", choices=BUGS, help="plant a bug, and end when it was found")
    parser.add_argument("--remember", action="store_true", help="add what fails to the regressions")
    given = parser.parse_args(arguments)
    if given.bug:
        configure("info")
        return find(given.bug, given.seeds)
    if given.here:
        configure("info")
        return bool(live_all(given.seeds))
    began = time.perf_counter()
    tally = run(given.seeds, given.workers, echo=True)
    _print(
        f"{tally.good} of {len(given.seeds)} lives were good: {tally.events} events, "
        f"{tally.elections} elections, {tally.acknowledged} acknowledged, "
        f"{time.perf_counter() - began:.0f} s; failed: {list(tally.failed) or 'none'}"
    )
    if given.remember and tally.failed:
        with REGRESSIONS.open("a") as file:
            file.writelines(f"{seed}\n" for seed in tally.failed if seed not in remembered())
    return bool(tally.failed)


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201, what whoever runs it wants to know


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
