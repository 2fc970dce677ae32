"""Lives of a cluster, one seed after the other: ``python -m tests.simulation.cluster_run 0-99``.

Runs in a process with ``PYTHONHASHSEED=0``: a set of names has another order otherwise, and with it
the run.  What fails is told with its story, and the next seed is tried all the same.
"""

import argparse
import gc
import os
import sys
import time
import traceback
from collections.abc import Iterable, Sequence

from tests.simulation.cluster_life import ClusterLife, Outcome
from waystation.telemetry.logs import configure


def seeds_of(text: str) -> list[int]:
    """``0-99`` or ``3,17,40-42``."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def run_seeds(seeds: Iterable[int], *, loud: bool) -> tuple[list[Outcome], list[int]]:
    """The lives that went well, and the seeds of those that did not."""
    lived, failed = [], []
    for seed in seeds:
        began = time.perf_counter()
        try:
            outcome = live(seed)
        except Exception as error:  # the outermost frame of a life
            failed.append(seed)
            _print(f"seed {seed} FAILED: {error}")
            _print("".join(traceback.format_exception(error)) if loud else "")
            continue
        lived.append(outcome)
        if loud:
            took_s = time.perf_counter() - began
            verdict = outcome.verdict
            _print(
                f"seed {seed}: {took_s:.2f} s, {outcome.events} events, {outcome.elections} "
                f"elections, {verdict.acknowledged} of {verdict.writes} acknowledged, "
                f"{verdict.reads} reads, {verdict.committed}/{verdict.aborted} transactions, "
                f"settled in {outcome.settled_ms:.0f} ms"
            )
    return lived, failed


def live(seed: int) -> Outcome:
    """One life, of which nothing is left that could meddle with the next one.

    What waits for ever on a machine without power must not be woken by the collector of garbage.
    """
    gc.disable()
    sys.unraisablehook = _ignored
    life = ClusterLife(seed)
    try:
        return life.run()
    finally:
        life.world.end()
        del life
        gc.collect()


def _ignored(_: object) -> None:
    """Coroutines of a world that has ended cannot clean up."""


def main(arguments: Sequence[str]) -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.cluster_run", *arguments])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=seeds_of)
    parser.add_argument("--quiet", action="store_true")
    given = parser.parse_args(arguments)
    configure("info")
    began = time.perf_counter()
    lived, failed = run_seeds(given.seeds, loud=not given.quiet)
    took_s = time.perf_counter() - began
    _print(
        f"{len(lived)} of {len(given.seeds)} lives were good, "
        f"{sum(one.events for one in lived)} events, "
        f"{sum(one.elections for one in lived)} elections, "
        f"{sum(one.verdict.acknowledged for one in lived)} acknowledged, {took_s:.0f} s; "
        f"failed: {failed or 'none'}"
    )
    return bool(failed)


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201, what whoever runs it wants to know


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
