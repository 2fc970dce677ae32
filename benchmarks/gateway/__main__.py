"""``python -m benchmarks.gateway``: what calls cost a node, and what its other clients notice.

Exit code 0 if everything is as promised, 1 if something falls short.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date
from pathlib import Path

from benchmarks.gateway import beside, posts, queue_calls
from benchmarks.gateway.rows import Row, render
from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers import machine
from benchmarks.peers.places import CACHE, RESULTS
from benchmarks.report.results import fresh_directory

_PARTS = ("posts", "beside", "queues")


def main() -> int:
    """Measure, print, write."""
    given = _arguments()
    Path(given.data_dir).mkdir(parents=True, exist_ok=True)
    facts = machine.facts(Path(given.data_dir).resolve())
    heading = "machine: " + ", ".join(f"{name} {value}" for name, value in facts.items())
    print(heading, flush=True)
    rows: list[Row] = []
    if "posts" in given.parts:
        rows += posts.measure(given.posts, given.connections, given.durability, given.data_dir)
    if "beside" in given.parts:
        rows += beside.measure(given.seconds, given.data_dir)
    if "queues" in given.parts:
        rows += queue_calls.measure(given.pairs, given.data_dir)
    text = render(rows)
    print(text, flush=True)
    if given.out or not given.quick:
        _write(given, facts, f"{heading}\n\n{text}\n", rows)
    return 0 if all(row.reached for row in rows) else 1


def _write(given: argparse.Namespace, facts: dict[str, object], text: str, rows: list[Row]) -> None:
    fresh = fresh_directory(RESULTS / "gateway", date.today())
    directory = Path(given.out) if given.out else fresh
    directory.mkdir(parents=True, exist_ok=True)
    result = {
        "machine": facts,
        "arguments": {n: str(value) for n, value in vars(given).items() if n != "data_dir"},
        "rows": [row._asdict() for row in rows],
    }
    (directory / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    (directory / "table.txt").write_text(text)
    print(f"written to {directory}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look of half a minute, no file")
    parser.add_argument("--parts", nargs="+", default=_PARTS, help="only these")
    parser.add_argument("--posts", type=int, help="single POSTs per round (60,000, quick 10,000)")
    parser.add_argument("--pairs", type=int, help="receives and acks per row (20,000, quick 2,000)")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--durability", default="memory", help="of the topics that are posted to")
    parser.add_argument("--seconds", type=float, help="of each latency load (20, quick 5)")
    parser.add_argument("--data-dir", default=CACHE / "data", help="where nodes keep their logs")
    parser.add_argument("--out", help="a directory for the result, instead of a dated one")
    given = parser.parse_args()
    given.posts = given.posts or (10_000 if given.quick else 60_000)
    given.pairs = given.pairs or (2_000 if given.quick else 20_000)
    given.seconds = given.seconds or (5.0 if given.quick else 20.0)
    return given


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LoadError as problem:
        sys.exit(f"bench: {problem}")
