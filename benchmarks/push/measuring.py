"""One load: a product's life, subscribers in one process, a publisher in another."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers.broker import RunningBroker, free_ports, fresh, life
from benchmarks.peers.handshake import wait_until_ready
from benchmarks.peers.member import Member
from benchmarks.peers.nats import NatsPeer
from benchmarks.peers.rabbitmq import RabbitmqPeer
from benchmarks.peers.waystation import COMMAND
from benchmarks.push import publishing, subscribers
from benchmarks.push.dialects import dialects
from benchmarks.push.rows import Scenario, Way

Figures = dict[str, float]

_READY_S = 60.0
_WARMUP_S = 2


@contextmanager
def running(peer: str, directory: Path) -> Iterator[tuple[RunningBroker, int]]:
    """A fresh life of a product, and the port at which it pushes."""
    if peer == "waystation":
        with _waystation(directory) as told:
            yield told
        return
    product = RabbitmqPeer() if peer == "rabbitmq" else NatsPeer()
    with product.running(directory) as broker:
        yield broker, broker.ports[0]


def measure(
    way: Way, scenario: Scenario, directory: Path, part: float, per_second: int, seconds: int
) -> Figures:
    """Latencies of one load in a life of its own, and what it cost.

    ``part`` of the subscribers are there.
    """
    subscribed = max(int(scenario.subscribers * part), 1)
    with running(way.peer, directory) as (broker, port):
        dialect = dialects()[way.dialect]
        streams = min(scenario.streams, subscribed)
        dialect.prepare(port, streams)
        rate = per_second * subscribed if scenario.is_queue else per_second
        wanted = subscribers.Wanted(
            way.dialect, port, subscribed, streams, rate * _WARMUP_S, scenario.is_queue
        )
        count = rate * (seconds + _WARMUP_S)
        published = publishing.Wanted(way.dialect, port, streams, rate, count, wanted.skipped)
        with _process("subscribers", asdict(wanted)) as receiving:
            _line(receiving, "subscribed")
            before_s = broker.cpu_seconds()
            with _process("publishing", asdict(published)) as sending:
                sent = json.loads(_line(sending))
            assert receiving.stdin is not None
            receiving.stdin.write(f"{count}\n")
            receiving.stdin.flush()
            found = json.loads(_line(receiving))
        used_s = broker.cpu_seconds() - before_s
        return {
            **{name: found[name] for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms")},
            "deliveries": found["deliveries"],
            "missing": found["missing"],
            "again": found["again"],
            "lost": found["lost"],
            "cpu_us_per_delivery": used_s / max(found["deliveries"], 1) * 1e6,
            "receiver_cores": found["cpu_s"] / (seconds + _WARMUP_S),
            "publisher_late_p99_ms": sent["late_p99_ms"],
            "rss_mb": broker.rss_mb(),
        }


@contextmanager
def _waystation(directory: Path) -> Iterator[tuple[RunningBroker, int]]:
    with fresh(directory):
        port, http = free_ports(2)
        log = directory.with_suffix(".log")
        log.unlink(missing_ok=True)
        command = [str(COMMAND), "serve", "--listen", f"127.0.0.1:{port}"]
        command += ["--http", f"127.0.0.1:{http}", "--data-dir", str(directory)]
        member = Member("waystation", command, log, partial(wait_until_ready, port, _READY_S))
        broker = RunningBroker("waystation", (port,), (member,))
        with life(broker, ((member,),)):
            yield broker, http


@contextmanager
def _process(module: str, wanted: dict[str, object]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", f"benchmarks.push.{module}", json.dumps(wanted)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str], expected: str = "") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line or (expected and line.strip() != expected):
        raise LoadError(f"{process.args!r} said {line!r}")
    return line
