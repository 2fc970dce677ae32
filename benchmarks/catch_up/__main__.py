"""What copying costs: ``python -m benchmarks.catch_up [--quick]``.

A follower is killed, some gigabytes are written without it, it returns.  Measured are how fast it
catches up unthrottled; at a throttle, how fast, and the leader's produce p99 at a steady load
beside it, over the p99 of the same load without; and how fast a large partition moves.  Rates are
taken from the sizes of the follower's files.  ``--peer kafka`` does the same to Kafka.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from datetime import date
from pathlib import Path

from benchmarks.catch_up.away import WINDOW_S, Amounts, Copied, Outages, Round
from benchmarks.catch_up.moving import move
from benchmarks.loads import librdkafka
from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers import machine
from benchmarks.peers.broker import PeerMissingError
from benchmarks.peers.cluster import running_cluster
from benchmarks.peers.clusters import cluster_of
from benchmarks.peers.handshake import NotReadyError
from benchmarks.peers.places import CACHE, RESULTS
from benchmarks.report.results import fresh_directory
from benchmarks.report.table import align, number

HIGHEST_RATIO = 1.2  # the leader's p99 with copying over the one without
HIGHEST_OF_THROTTLE = 1.05
LOWEST_OF_THROTTLE = 0.8
_HEADER = ("what", "figure", "value", "unit", "", "", "required", "verdict")


def main() -> int:
    """Measure, print, write."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given = _arguments()
    peer = cluster_of(given.peer)
    try:
        peer.install()
    except PeerMissingError as error:
        print(f"nothing to measure: {error}", file=sys.stderr)
        return 2
    librdkafka.build()
    data = Path(given.data_dir).resolve() / "catch-up"
    facts = machine.facts(data.parent)
    print("machine: " + ", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    throttle = int(given.throttle_mb * 1e6)
    amounts = Amounts(int(given.gb * 1e9), throttle, given.rate, given.seconds)
    began = time.monotonic()

    def step(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True)

    rounds: list[Round] = []
    with running_cluster(peer, data, given.durability) as cluster:
        outages = Outages(cluster, data, amounts, step)
        outages.warm_up()
        free = outages.unthrottled()
        rounds = [outages.throttled() for _ in range(given.rounds)]
        outages.end()
        moved = move(cluster, data, int(given.move_gb * 1e9), throttle, step)
    text = render(rounds, free, moved, throttle)
    print(f"\n{text}", flush=True)
    result = {
        "machine": facts,
        "peer": given.peer,
        "arguments": {name: str(value) for name, value in vars(given).items()},
        "rounds": [{**one._asdict(), "throttled": one.throttled._asdict()} for one in rounds],
        "unthrottled": free._asdict(),
        "moved": moved._asdict(),
    }
    directory = (
        Path(given.out) if given.out else fresh_directory(RESULTS / "catch-up", date.today())
    )
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    (directory / "table.txt").write_text(text + "\n")
    print(f"\nwritten to {directory}")
    return 0


def render(rounds: list[Round], free: Copied, moved: Copied, throttle: int) -> str:
    """The figures with what is required of them."""
    ratio = statistics.median(one.ratio for one in rounds)
    catching = statistics.median(one.throttled.mean_bytes_per_s for one in rounds)
    burst = max(one.throttled.fastest_bytes_per_s for one in rounds)
    without = statistics.median(ms for one in rounds for ms in (one.before_ms, one.after_ms))
    during = statistics.median(one.during_ms for one in rounds)
    window = f"fastest {WINDOW_S:g} s"
    return align(
        [
            _HEADER,
            _row("leader, nobody copies", "publish p99", without, "ms"),
            _row("leader, follower copies", "publish p99", during, "ms"),
            _row("with over without", "publish p99", ratio, "x", at_most=HIGHEST_RATIO),
            _held("catching up, throttled", catching, throttle),
            _row("catching up, throttled", window, burst / 1e6, "MB/s"),
            _row("catching up, unthrottled", "mean", free.mean_bytes_per_s / 1e6, "MB/s"),
            _row("catching up, unthrottled", window, free.fastest_bytes_per_s / 1e6, "MB/s"),
            _held(f"moving {moved.nbytes / 1e9:.1f} GB", moved.mean_bytes_per_s, throttle),
            _row(
                f"moving {moved.nbytes / 1e9:.1f} GB",
                window,
                moved.fastest_bytes_per_s / 1e6,
                "MB/s",
            ),
        ]
    )


def _held(what: str, bytes_per_s: float, throttle: int) -> tuple[str, ...]:
    least, most = LOWEST_OF_THROTTLE * throttle / 1e6, HIGHEST_OF_THROTTLE * throttle / 1e6
    return _row(what, "mean", bytes_per_s / 1e6, "MB/s", at_least=least, at_most=most)


def _row(
    what: str,
    figure: str,
    value: float,
    unit: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> tuple[str, ...]:
    bounds = [f">= {at_least:g}"] if at_least is not None else []
    bounds += [f"<= {at_most:g}"] if at_most is not None else []
    kept = (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
    verdict = ("pass" if kept else "FALLS SHORT") if bounds else ""
    shown = number(value) if value else "-"  # over sooner than one window
    return (what, figure, shown, unit, "", "", ", ".join(bounds), verdict)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catch_up", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything: a look")
    parser.add_argument("--gb", type=float, help="written while the follower is away (default 3)")
    parser.add_argument("--move-gb", type=float, help="in the partition that moves (default 10)")
    parser.add_argument("--throttle-mb", type=float, default=50.0, help="MB/s of 10^6 bytes")
    parser.add_argument("--rate", type=int, default=12_000, help="messages of 1 KB a second")
    parser.add_argument("--seconds", type=float, help="of each load (default 25)")
    parser.add_argument("--rounds", type=int, help="throttled outages (default 3)")
    parser.add_argument("--durability", choices=("memory", "disk"), default="memory")
    parser.add_argument("--peer", choices=("waystation", "kafka"), default="waystation")
    parser.add_argument("--data-dir", default=CACHE / "data", help="where brokers keep their logs")
    parser.add_argument("--out", help="where results go (default benchmarks/results/catch-up)")
    given = parser.parse_args()
    usual = (0.6, 0.5, 5.0, 1) if given.quick else (3.0, 10.0, 25.0, 3)
    for name, value in zip(("gb", "move_gb", "seconds", "rounds"), usual, strict=True):
        if getattr(given, name) is None:
            setattr(given, name, value)
    return given


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LoadError, NotReadyError) as problem:
        sys.exit(f"catch_up: {problem}")
