"""One load: a product's life, subscribers in one process, a publisher in another."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers.broker import RunningBroker, free_ports, fresh, life
from benchmarks.peers.handshake import wait_until_ready
from benchmarks.peers.member import Member
from benchmarks.peers.nats import NatsPeer
from benchmarks.peers.places import ROOT
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
    streams = min(scenario.streams, subscribed)
    rate = per_second * subscribed if scenario.is_queue else per_second
    with running(way.peer, directory) as (broker, port):
        dialects()[way.dialect].prepare(port, streams)
        wanted = subscribers.Wanted(
            way.dialect, port, subscribed, streams, rate * _WARMUP_S, scenario.is_queue
        )
        found = loaded(wanted, rate, rate * (seconds + _WARMUP_S), broker.cpu_seconds)
        used_s = found.pop("broker_cpu_s")
        return {
            **found,
            "cpu_us_per_delivery": used_s / max(found["deliveries"], 1) * 1e6,
            "receiver_cores": found["cpu_s"] / (seconds + _WARMUP_S),
            "rss_mb": broker.rss_mb(),
        }


def loaded(
    wanted: subscribers.Wanted, rate: int, count: int, cpu_seconds: Callable[[], float]
) -> Figures:
    """Subscribe, publish ``count`` messages to each stream, and see what came."""
    published = publishing.Wanted(
        wanted.dialect, wanted.port, wanted.streams, rate, count, wanted.skipped
    )
    with _process("subscribers", asdict(wanted)) as receiving:
        _line(receiving, "subscribed")
        before_s = cpu_seconds()
        with _process("publishing", asdict(published)) as sending:
            sent = json.loads(_line(sending))
        assert receiving.stdin is not None
        receiving.stdin.write(f"{count}\n")
        receiving.stdin.flush()
        found: Figures = json.loads(_line(receiving))
    late_ms = {"publisher_late_p99_ms": sent["late_p99_ms"]}
    return found | late_ms | {"broker_cpu_s": cpu_seconds() - before_s}


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
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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
