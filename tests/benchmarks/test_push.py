"""The push benchmark measures what it says: lateness from due to read, and what never came."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest
from benchmarks.push import publishing, subscribers
from benchmarks.push.dialects import Due, dialects
from benchmarks.push.marks import marks_in, message, rest_of
from benchmarks.push.measuring import loaded
from benchmarks.push.rows import FAN_OUT, HUNDREDTHS, SUBSCRIBERS, WAYS, Way
from benchmarks.push.table import falls_short, render
from tests.support.figures import cpu_seconds

from waystation.testing.process import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]


def figures(p99_ms: float, missing: int = 0) -> dict[str, float]:
    latencies = {"p50_ms": 1.0, "p99_ms": p99_ms, "p999_ms": p99_ms, "max_ms": p99_ms}
    rest = {"missing": missing, "lost": 0, "cpu_us_per_delivery": 9.0, "rss_mb": 60.0}
    return latencies | {name: float(value) for name, value in rest.items()}


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_marks_are_found_once_wherever_the_bytes_were_cut(cut: int) -> None:
    sent = b"".join(b"id: 1\ndata: %s\n\n" % message(n * 1_000, n) for n in range(3))
    rest, found = b"", []
    for at in range(0, len(sent), cut):
        found += marks_in(rest + sent[at : at + cut])
        rest = rest_of(rest + sent[at : at + cut])

    assert [(int(due), int(number)) for due, number in found] == [(0, 0), (1_000, 1), (2_000, 2)]


def test_every_way_is_spoken_and_every_load_has_its_subscribers() -> None:
    known = dialects()
    assert {way.dialect for way in WAYS} == set(known)
    for way in WAYS:
        for scenario in way.scenarios:
            assert scenario.subscribers % scenario.streams == 0
            assert scenario.is_queue or scenario.subscribers == SUBSCRIBERS


def test_too_slow_and_lost_fall_short_and_others_are_not_judged() -> None:
    ours, theirs = Way("waystation", "sse", ()), Way("nats", "nats", ())
    rounds = {
        (FAN_OUT, ours): [figures(25.0), figures(19.0), figures(21.0)],
        (FAN_OUT, theirs): [figures(99.0)],
        (HUNDREDTHS, ours): [figures(30.0, missing=2)],
    }

    short = falls_short(rounds)

    assert short == [
        "one stream: all are sent the same, waystation by sse: p99 21.0 ms",
        "100 streams with 10 subscribers each, waystation by sse: messages are missing",
    ]
    assert "p99 < 20       NO" in render(rounds)


class Noted:
    """A publisher that keeps what it is given."""

    def __init__(self) -> None:
        self.due: list[Due] = []

    def publish(self, due: list[Due]) -> None:  # type: ignore[override]
        self.due += due

    def settle(self) -> None:
        self.due.append((-1, b""))


def test_streams_take_turns_and_what_is_late_keeps_its_time() -> None:
    noted = Noted()

    told = publishing.publish(publishing.Wanted("", 0, 3, 100.0, 4), noted)

    assert noted.due.pop() == (-1, b""), "settled at the end"
    assert [stream for stream, _ in noted.due] == [0, 1, 2] * 4
    due = [int(one[0][0]) for one in (marks_in(content) for _, content in noted.due)]
    steps = [after - before for before, after in pairwise(due)]
    assert all(abs(step - 1e9 / 300) <= 1 for step in steps)
    assert told.late_p99_ms >= 0


class Forgetful:
    """Pushes to each subscriber, and leaves some out, some it sends again."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])

    def serve(self, count: int) -> None:
        for number in range(count):
            connection, _ = self._listening.accept()
            connection.recv(65_536)
            connection.sendall(b"PONG\r\n")
            numbers = [0, 1, 2, 3] if number else [0, 2, 2, 3]
            for one in numbers:
                connection.sendall(b"MSG %s\r\n" % message(time.monotonic_ns() - 5_000_000, one))


def test_what_is_missing_and_what_comes_again_is_counted() -> None:
    server = Forgetful()
    serving = threading.Thread(target=server.serve, args=(3,), daemon=True)
    serving.start()
    wanted = subscribers.Wanted("nats", server.port, 3, 1, 0, shared=False)
    command = [sys.executable, "-m", "benchmarks.push.subscribers", json.dumps(asdict(wanted))]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "subscribed\n"
        told, _ = process.communicate("4\n", timeout=30)
    found = json.loads(told)
    serving.join()

    assert (found["deliveries"], found["missing"], found["again"]) == (12, 1, 1)
    assert found["p50_ms"] >= 5


@pytest.mark.parametrize("name", ["sse", "sse-key", "websocket", "queue-socket"])
def test_our_own_ways_deliver_everything(broker: BrokerProcess, name: str) -> None:
    """Whether the node still speaks as the benchmark does; the peers are not fetched for it."""
    port, shared = int(broker.http.rpartition(":")[2]), name == "queue-socket"
    streams = 1 if shared else 2
    dialects()[name].prepare(port, streams)
    wanted = subscribers.Wanted(name, port, 4, streams, 0, shared)

    found = loaded(wanted, 100, 20, lambda: cpu_seconds(broker.pid))

    assert (found["missing"], found["again"], found["lost"]) == (0, 0, 0)
    assert found["deliveries"] == (20 if shared else 80)
    assert found["broker_cpu_s"] < 30
