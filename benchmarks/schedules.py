"""Scheduled messages on real brokers: ``python -m benchmarks.schedules [--quick]``.

One broker with as many messages pending over a year as asked for: its memory; then messages that
fall due at 5,000 a second beside them, and how late a consumer has them, from the moment at which
each was due.  Then three brokers and etcd with as many pending: the leader of all companions is
killed while messages fall due, and the latest of these tells how long nothing was delivered.
Whatever is missing, doubled or early is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import NamedTuple

from tests.support.cluster import ProcessCluster

from benchmarks.peers import machine
from benchmarks.peers.places import RESULTS
from benchmarks.report.results import fresh_directory
from benchmarks.scheduling.loads import (
    Lateness,
    Reader,
    cpu_s_of,
    create,
    fall_due,
    fill,
    now_ms,
    peak_bytes_of,
    settled,
)
from waystation.runtime.loops import run
from waystation.testing.process import BrokerProcess

TOPIC = "orders"
# What the project promises.
P99_MS, MEMORY_MB, FAILOVER_S = 50.0, 500.0, 10.0
_UNPACKED = Path(__file__).parent.parent / ".cache" / "tools" / "usr" / "bin"
_WITHIN_S = 60.0
_KILLED_AFTER_S = 3.0


class Row(NamedTuple):
    """One figure and what it must be."""

    name: str
    value: float
    unit: str
    required: str = ""
    reached: bool = True


def main() -> int:
    """Measure, print, write."""
    given = _arguments()
    os.environ["PATH"] += f"{os.pathsep}{_UNPACKED}"
    facts = machine.facts(Path(tempfile.gettempdir()))
    print("machine: " + ", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    rows: list[Row] = []
    if "one" in given.parts:
        rows += run(_one_broker(given))
    if "failover" in given.parts:
        rows += _failover(given)
    for row in rows:
        verdict = f"{row.required}: {'yes' if row.reached else 'NO'}" if row.required else ""
        print(f"{row.name:<62} {row.value:12,.1f} {row.unit:<6} {verdict}")
    if given.out or not given.quick:
        _write(given, facts, rows)
    return 0 if all(row.reached for row in rows) else 1


async def _one_broker(given: argparse.Namespace) -> list[Row]:
    with (
        tempfile.TemporaryDirectory(prefix="schedules-", dir=given.data_dir) as folder,
        BrokerProcess(Path(folder) / "data") as broker,
    ):
        await create(broker.bootstrap, TOPIC, given.partitions)
        idle_mb = broker.rss_bytes() / 1e6
        took_s = await fill(broker.bootstrap, TOPIC, given.partitions, given.pending)
        known_s = await settled(broker.bootstrap, TOPIC, given.pending, [broker.pid])
        print(
            f"{given.pending:,} sent in {took_s:.0f} s, settled {known_s:.0f} s later", flush=True
        )
        filled_mb, most_mb = broker.rss_bytes() / 1e6, peak_bytes_of(broker.pid) / 1e6
        late, cpu_s = await _due_at_a_rate(broker, given)
        due_mb = broker.rss_bytes() / 1e6
    expected = int(given.rate * given.seconds)
    return [
        Row("memory of the broker, nothing pending", idle_mb, "MB"),
        _at_most(f"memory, {given.pending:,} pending over a year", filled_mb, "MB", MEMORY_MB),
        _at_most("  at most, while they were sent", most_mb, "MB", MEMORY_MB),
        _at_most("  after the due ones", due_mb, "MB", MEMORY_MB),
        Row(f"scheduling {given.pending:,}", given.pending / took_s, "msg/s"),
        *_lateness(f"{given.rate:,} due a second", late, expected),
        Row(
            "  CPU of the broker, the reader's fetches included", cpu_s / expected * 1e6, "µs each"
        ),
        _at_most("  p99, due to read", late.p99, "ms", P99_MS),
    ]


async def _due_at_a_rate(
    broker: BrokerProcess, given: argparse.Namespace
) -> tuple[Lateness, float]:
    """How late they came, and the CPU time that the broker took from the first one on."""
    expected = int(given.rate * given.seconds)
    async with Reader(broker.bootstrap, TOPIC) as reader:
        first_ms = await fall_due(
            broker.bootstrap, TOPIC, given.partitions, given.rate, given.seconds, given.lead
        )
        await asyncio.sleep(max(0.0, (first_ms - now_ms()) / 1_000))
        before_s = cpu_s_of(broker.pid)
        await reader.until(expected, given.seconds + _WITHIN_S)
        return reader.lateness(), cpu_s_of(broker.pid) - before_s


def _lateness(name: str, late: Lateness, expected: int) -> list[Row]:
    return [
        _exactly(f"{name}: missing of {expected:,}", expected - late.count),
        _exactly("  doubled", late.doubled),
        _never_early("  earliest, due to read", late.earliest),
        _never_early("  earliest, due to decided", late.decided_earliest),
        Row("  p50, due to read", late.p50, "ms"),
        Row("  p99, due to decided", late.decided_p99, "ms"),
        Row("  latest, due to read", late.worst, "ms"),
    ]


def _failover(given: argparse.Namespace) -> list[Row]:
    with (
        tempfile.TemporaryDirectory(prefix="schedules-", dir=given.data_dir) as folder,
        ProcessCluster(Path(folder), 3, options={"segment.bytes": str(64 << 20)}) as cluster,
    ):
        late, memory_mb = run(_killed(cluster, given))
    expected = int(given.failover_rate * given.failover_seconds)
    return [
        _at_most("memory of the largest of three brokers", memory_mb, "MB", MEMORY_MB),
        *_lateness(f"failover with {given.pending:,} pending", late, expected),
        _at_most("  until everything was delivered again", late.worst / 1e3, "s", FAILOVER_S),
    ]


async def _killed(cluster: ProcessCluster, given: argparse.Namespace) -> tuple[Lateness, float]:
    await create(cluster.bootstrap, TOPIC, 1, replication=3)
    took_s = await fill(cluster.bootstrap, TOPIC, 1, given.pending)
    pids = [broker.pid for broker in cluster.brokers.values()]
    known_s = await settled(cluster.bootstrap, TOPIC, given.pending, pids)
    print(f"{given.pending:,} sent in {took_s:.0f} s, settled {known_s:.0f} s later", flush=True)
    described = await asyncio.to_thread(cluster.topic, f"{TOPIC}.delay")
    leader = described.partitions[0].leader
    rate, seconds = given.failover_rate, given.failover_seconds
    async with Reader(cluster.bootstrap, TOPIC) as reader:
        await fall_due(cluster.bootstrap, TOPIC, 1, rate, seconds, given.failover_lead)
        await asyncio.sleep(given.failover_lead + _KILLED_AFTER_S)
        memory_mb = max(one.rss_bytes() for one in cluster.brokers.values()) / 1e6
        await asyncio.to_thread(cluster.kill, leader)
        await reader.until(int(rate * seconds), seconds + _WITHIN_S)
        return reader.lateness(), memory_mb


def _at_most(name: str, value: float, unit: str, limit: float) -> Row:
    return Row(name, value, unit, f"less than {limit:g}", value < limit)


def _exactly(name: str, value: int) -> Row:
    return Row(name, value, "", "none", value == 0)


def _never_early(name: str, value: float) -> Row:
    return Row(name, value, "ms", "never early", value >= 0)


def _write(given: argparse.Namespace, facts: dict[str, object], rows: list[Row]) -> None:
    directory = (
        Path(given.out) if given.out else fresh_directory(RESULTS / "schedules", date.today())
    )
    directory.mkdir(parents=True, exist_ok=True)
    result = {
        "machine": facts,
        "arguments": {name: str(value) for name, value in vars(given).items()},
        "rows": [row._asdict() for row in rows],
    }
    (directory / "schedules.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {directory}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="500,000 pending, 10 s, no file")
    parser.add_argument("--parts", nargs="+", default=["one", "failover"], help="only these")
    parser.add_argument("--pending", type=int, help="how many wait: 10,000,000")
    parser.add_argument("--partitions", type=int, default=4, help="of the topic on one broker")
    parser.add_argument("--rate", type=int, default=5_000, help="how many fall due a second")
    parser.add_argument("--seconds", type=float, help="for how long: 60")
    parser.add_argument("--lead", type=float, default=30.0, help="seconds to send them before")
    parser.add_argument("--failover-rate", type=int, default=200)
    parser.add_argument("--failover-seconds", type=float, default=20.0)
    parser.add_argument("--failover-lead", type=float, default=10.0)
    parser.add_argument("--data-dir", help="where brokers keep their logs")
    parser.add_argument("--out", help="a directory for the result, instead of a dated one")
    given = parser.parse_args()
    if given.pending is None:
        given.pending = 500_000 if given.quick else 10_000_000
    if given.seconds is None:
        given.seconds = 10.0 if given.quick else 60.0
    return given


if __name__ == "__main__":
    sys.exit(main())
