"""One life of a product with its queues under load, and what each load reached.

Ours and Kafka's are loaded by confluent-kafka (``loads/queue_load.py``), RabbitMQ's by its own
PerfTest.  Both are one process with one producer and several consumers, measured after a warm-up;
both confirm what is sent and acknowledge what is received, many at a time.
"""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from benchmarks.loads import java_tools
from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers import java
from benchmarks.peers.broker import Peer, RunningBroker, running
from benchmarks.peers.kafka import KafkaPeer
from benchmarks.peers.places import CACHE, ROOT
from benchmarks.peers.rabbitmq import RabbitmqPeer
from benchmarks.peers.waystation import WaystationPeer
from benchmarks.queues.rows import RABBITMQ, WAYSTATION, Life, QueueLoad

Rows = dict[str, dict[str, float]]

ON_THEIR_WAY = 50_000
"""How many messages a producer of ours may be ahead of the consumers."""
CONFIRMS, PREFETCH, ACK_EVERY = 5_000, 1_000, 100
"""What RabbitMQ is fastest with, of what was tried: single acknowledgements halve it."""

PERF_TEST_VERSION = "2.22.1"
_PERF_TEST = (("com.rabbitmq", "perf-test", PERF_TEST_VERSION),)
_SECOND = re.compile(
    r"time:?\s+(?P<time>[\d.,]+)\s*s\b.*?sent:?\s+(?P<sent>[\d.,]+)\s*msg/s"
    r".*?received:?\s+(?P<received>[\d.,]+)\s*msg/s"
)
_TIMEOUT_S = 300
_topics = count()


@dataclass(frozen=True)
class Times:
    """How long each load is measured, and how long it runs before."""

    seconds: float = 8.0
    warmup_s: float = 5.0
    life_warmup_s: float = 10.0
    """How long a life's first load runs once before, for nothing but to warm its broker."""


def perf_test_jars() -> Path:
    """Where PerfTest is, once ``fetch_perf_test`` has run."""
    return CACHE / f"perf-test-{PERF_TEST_VERSION}"


def fetch_perf_test() -> None:
    """Have RabbitMQ's own load program, from Maven Central."""
    java.fetch(_PERF_TEST, perf_test_jars())


def steps_in(life: Life) -> int:
    """How many steps ``measure`` will announce; RabbitMQ's load is its own warm-up."""
    return 1 if life.peer == RABBITMQ else len(life.loads) + 1


def measure(life: Life, directory: Path, times: Times, step: Callable[[str], None]) -> Rows:
    """All loads of one life, by the names of their rows."""
    rows: Rows = {}
    with _started(life, directory / life.peer) as broker:
        if life.peer != RABBITMQ:
            step(f"{life.peer}, {life.durability}: warm-up")
            _run(life, life.loads[0], broker, Times(times.life_warmup_s, 0.0))
        for load in life.loads[-1:] if life.peer == RABBITMQ else life.loads:
            step(f"{life.peer}, {life.durability}: {load.name}")
            os.sync()
            before_s = broker.cpu_seconds()
            figures = _run(life, load, broker, times)
            if not broker.alive():
                raise LoadError(f"{life.peer} ended during {load.name}")
            # Over the whole load, warm-up included.
            spent_ms = (broker.cpu_seconds() - before_s) * 1_000
            figures["cpu_ms_per_mb"] = spent_ms / (figures.pop("all") * load.size_bytes / 1e6)
            for name in _names(life, load):
                rows[name] = figures
        rows[f"memory after queues {life.durability}"] = {"peak_rss_mb": broker.peak_rss_mb()}
    return rows


def _names(life: Life, load: QueueLoad) -> list[str]:
    beside = life.loads if life.peer == RABBITMQ else (load,)
    return [one.row(life.durability) for one in beside]


@contextmanager
def _started(life: Life, directory: Path) -> Iterator[RunningBroker]:
    if life.peer == RABBITMQ:
        with RabbitmqPeer().running(directory) as broker:
            yield broker
        return
    peer: Peer = WaystationPeer() if life.peer == WAYSTATION else KafkaPeer()
    with running(peer, directory, life.durability) as broker:
        yield broker


def _run(life: Life, load: QueueLoad, broker: RunningBroker, times: Times) -> dict[str, float]:
    if life.peer == RABBITMQ:
        before_s = _clients_cpu_s()
        said = _perf_test(load, f"amqp://guest:guest@127.0.0.1:{broker.ports[0]}", times)
        figures = parse_perf_test(said, _perf_test_warmup_s(times))
        spent_ms = (_clients_cpu_s() - before_s) * 1_000  # the start of its Java included
        figures["client_cpu_ms_per_mb"] = spent_ms / (figures["all"] * load.size_bytes / 1e6)
        return figures
    return parse_queue_load(_queue_load(load, broker.bootstrap, times))


def _queue_load(load: QueueLoad, bootstrap: str, times: Times) -> str:
    options: dict[str, object] = {
        "bootstrap": bootstrap,
        "topic": f"queue-{next(_topics)}",
        "partitions": load.partitions,
        "consumers": load.consumers,
        "size": load.size_bytes,
        "keys": load.keys,
        "order": load.order,
        "beside": int(load.beside),
        "on_their_way": ON_THEIR_WAY,
        "warmup_ms": int(times.warmup_s * 1_000),
        "measured_ms": int(times.seconds * 1_000),
    }
    command = [sys.executable, "-m", "benchmarks.loads.queue_load"]
    command += [f"{name}={value}" for name, value in options.items()]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise LoadError(f"queue_load: not done in {_TIMEOUT_S} s") from None
    if done.returncode:
        raise LoadError(f"queue_load:\n{done.stderr[-1_000:]}")
    return done.stdout


def _perf_test(load: QueueLoad, uri: str, times: Times) -> str:
    lasting_s = int(_perf_test_warmup_s(times) + times.seconds + 1)
    return java_tools.run_class(
        "com.rabbitmq.perf.PerfTest",
        *("--uri", uri, "--queue", f"queue-{next(_topics)}", "--quorum-queue"),
        *("--producers", "1", "--consumers", str(load.consumers), "--size", str(load.size_bytes)),
        *("--confirm", str(CONFIRMS), "--qos", str(PREFETCH)),
        *("--multi-ack-every", str(ACK_EVERY), "--flag", "persistent"),
        *("--time", str(lasting_s), "--metrics-format", "default"),
        classpath=f"{perf_test_jars()}/*",
    )


def _perf_test_warmup_s(times: Times) -> float:
    """The node's and the client's own: PerfTest is slow until Java has compiled it."""
    return times.life_warmup_s + times.warmup_s


def parse_queue_load(output: str) -> dict[str, float]:
    """The last line; what a group read beside the queue only if one did."""
    try:
        told = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise LoadError(f"queue_load printed no summary:\n{output[-500:]}") from None
    figures = {
        "messages_per_s": float(told["messages_per_s"]),
        "messages": float(told["messages"]),
        "client_cpu_ms_per_mb": float(told["client_cpu_ms_per_mb"]),
        "again": float(told["received"] - told["acknowledged"]),
        "all": float(told["acknowledged"]),
    }
    if told["read"]:
        figures["read_per_s"] = float(told["read_per_s"])
    return figures


def _clients_cpu_s() -> float:
    """Of all programs that have ended: brokers are still running."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def parse_perf_test(output: str, warmup_s: float) -> dict[str, float]:
    """What was sent and received in each second after the warm-up; the lower of the two counts."""
    found = [
        {name: float(text.replace(",", "")) for name, text in one.groupdict().items()}
        for one in _SECOND.finditer(output)
    ]
    warm = [one for one in found if one["time"] > warmup_s + 0.5]
    if not warm:
        raise LoadError(f"PerfTest printed no rates:\n{output[-500:]}")
    sent = statistics.mean(one["sent"] for one in warm)
    received = statistics.mean(one["received"] for one in warm)
    return {
        "messages_per_s": min(sent, received),
        "messages": sum(one["received"] for one in warm),
        "all": sum(one["received"] for one in found),
    }
