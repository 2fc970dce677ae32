"""What Kafka's clients notice of 2,000 POSTs a second: their latencies with and without.

librdkafka publishes and reads 12,000 messages of 1 KB a second in 6 partitions, with acks=all and
its own linger of 5 ms, which is part of every latency (``loads/rdload.c``).  A message's latency
counts from when it was due.  Both loads go to topics of their own of one node.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from benchmarks.gateway.node import create_topic, node
from benchmarks.gateway.rows import Row
from benchmarks.loads import librdkafka
from benchmarks.loads.catalog import Kind, Load
from benchmarks.loads.librdkafka import LoadError
from waystation.testing.process import BrokerProcess

POSTS_PER_S, P99_MS = 2_000, 10.0
_LOAD = Load(
    "latency", Kind.LATENCY, partitions=6, settings=("producer.linger.ms=5",), warmup_seconds=2.0
)
_BODY = msgspec.json.encode({"key": "customer-1234567", "value": "v" * 100})


def measure(seconds: float, data_dir: str | None) -> list[Row]:
    """Rows for each durability: alone, then beside the POSTs."""
    librdkafka.build()
    return [
        row for durability in ("memory", "disk") for row in _rows(durability, seconds, data_dir)
    ]


def _rows(durability: str, seconds: float, data_dir: str | None) -> list[Row]:
    load = replace(_LOAD, seconds=seconds)
    with node(data_dir) as broker:
        for topic in ("alone", "beside", "posts"):
            create_topic(broker, topic, load.partitions, durability)
        alone = librdkafka.run(load, broker.bootstrap, "alone")
        with posting(broker, POSTS_PER_S) as posts:
            beside = librdkafka.run(load, broker.bootstrap, "beside")
    name = f"Kafka's clients, {durability}"
    return [
        Row(f"{name}, alone: publish p99", _p99(alone, "publish"), "ms"),
        Row("  end to end p99", _p99(alone, "end_to_end"), "ms"),
        Row(
            f"{name}, beside {POSTS_PER_S:,} POST/s: publish p99",
            _p99(beside, "publish"),
            "ms",
            below=P99_MS,
        ),
        Row("  end to end p99", _p99(beside, "end_to_end"), "ms"),
        Row("  POSTs that were answered a second", posts["rate"], "POST/s"),
        Row("  p99 of a POST", posts["p99_ms"], "ms"),
    ]


@contextmanager
def posting(broker: BrokerProcess, rate: int) -> Iterator[dict[str, float]]:
    """POSTs at a rate for as long as the block lasts; what is yielded knows more at its end."""
    command = [sys.executable, "-m", "benchmarks.gateway.posting", broker.http]
    command += ["/v1/topics/posts/messages", _BODY.decode(), str(rate)]
    told: dict[str, float] = {}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().strip() != "posting":
            raise LoadError("the POSTs did not begin")
        yield told
        process.stdin.close()
        said = process.stdout.read()
    if process.returncode:
        raise LoadError("the POSTs ended early")
    told.update(json.loads(said))


def _p99(reported: dict[str, object], what: str) -> float:
    found = reported[f"{what}_ms"]
    assert isinstance(found, dict), f"{what} is {found!r}"
    return float(found["p99"])
