"""How long clients wait when brokers go: ``python -m benchmarks.failover [--kills 20]``.

Three brokers and etcd on this machine, a lease of 3 s.  A client writes to six partitions of two
replicas without pause, ``acks=all``; what it waits at most is counted for partitions that the
broker led, followed and had no part in.  Then a broker that leads a thousand partitions is killed,
and the time taken until all of them have acknowledged a record again; and brokers are stopped
cleanly.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from tests.support.cluster import ProcessCluster
from tests.support.failover import (
    Pauses,
    balance,
    failover_of_many,
    lay_out,
    pauses_of_a_kill,
    pauses_of_a_stop,
)

from benchmarks.peers import machine
from benchmarks.peers.places import RESULTS
from benchmarks.report.results import fresh_directory

# Seconds, as the project promises them.
MEDIAN_S, WORST_S, APART_S, MANY_S, STOPPED_S = 5.0, 8.0, 1.0, 10.0, 0.5
_UNPACKED = Path(__file__).parent.parent / ".cache" / "tools" / "usr" / "bin"


def main() -> int:
    """Measure, print, write."""
    given = _arguments()
    os.environ["PATH"] += f"{os.pathsep}{_UNPACKED}"
    facts = machine.facts(Path(tempfile.gettempdir()))
    print("machine: " + ", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="failover-") as folder,
        ProcessCluster(Path(folder), 3, store=given.store) as cluster,
    ):
        lay_out(cluster)
        balance(cluster)
        kills = [_told("kill", pauses_of_a_kill(cluster, n % 3 + 1)) for n in range(given.kills)]
        stops = [_told("stop", pauses_of_a_stop(cluster, n % 3 + 1)) for n in range(given.stops)]
        many_s = failover_of_many(cluster, "many", given.partitions)
    rows = _rows(kills, stops, given.partitions, many_s)
    for name, value, limit in rows:
        verdict = "" if limit is None else f"at most {limit:g}: {'yes' if value < limit else 'NO'}"
        print(f"{name:<58} {value:6.2f} s   {verdict}")
    if given.out or not given.quick:
        directory = (
            Path(given.out) if given.out else fresh_directory(RESULTS / "failover", date.today())
        )
        directory.mkdir(parents=True, exist_ok=True)
        result = {
            "machine": facts,
            "arguments": {name: str(value) for name, value in vars(given).items()},
            "kills": [one._asdict() for one in kills],
            "stops": [one._asdict() for one in stops],
            "partitions": given.partitions,
            "many_s": many_s,
        }
        (directory / "failover.json").write_text(json.dumps(result, indent=1) + "\n")
        print(f"written to {directory}")
    return 0 if all(limit is None or value < limit for _, value, limit in rows) else 1


def _rows(
    kills: Sequence[Pauses], stops: Sequence[Pauses], partitions: int, many_s: float
) -> list[tuple[str, float, float | None]]:
    led = [one.led for one in kills]
    followed = [one.followed for one in kills]
    return [
        (f"led by the killed one, median of {len(kills)}", statistics.median(led), MEDIAN_S),
        ("led by the killed one, worst", max(led), WORST_S),
        ("followed by it (acks=all waits for it), median", statistics.median(followed), None),
        ("followed by it, worst", max(followed), WORST_S),
        ("without it, worst", max(one.apart for one in kills), APART_S),
        (f"{partitions} partitions, until the last serves again", many_s, MANY_S),
        (f"a clean stop, worst of {len(stops)}", max(max(one) for one in stops), STOPPED_S),
    ]


def _told(what: str, pauses: Pauses) -> Pauses:
    print(
        f"{what}: " + ", ".join(f"{n} {v:.2f} s" for n, v in pauses._asdict().items()), flush=True
    )
    return pauses


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--stops", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--store", choices=("etcd", "zookeeper"), default="etcd")
    parser.add_argument("--quick", action="store_true", help="2 kills, 100 partitions, no file")
    parser.add_argument("--out", help="a directory for the result, instead of a dated one")
    given = parser.parse_args()
    if given.quick:
        given.kills, given.stops, given.partitions = 2, 1, 100
    return given


if __name__ == "__main__":
    sys.exit(main())
