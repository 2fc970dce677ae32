"""Kafka's own Java clients as loads: ProducerPerformance, ConsumerPerformance, and a consumer
without a group (``AssignedConsumer.java``) for brokers that have no groups yet.

Their defaults are kept: the producer is idempotent, batches of 16 KB, linger 5 ms.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from benchmarks.loads.catalog import Kind, Load
from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers import java
from benchmarks.peers.places import CACHE

_HEAP = "-Xmx512M"  # bin/kafka-producer-perf-test.sh and kafka-consumer-perf-test.sh
_TIMEOUT_S = 600
_SOURCE = Path(__file__).with_name("AssignedConsumer.java")
_CLASSES = CACHE / "classes"
_LOGGING = Path(java.__file__).with_name("tools-log4j2.properties")

_PRODUCED = re.compile(
    r"(?P<messages>\d+) records sent, (?P<rate>[\d.]+) records/sec .*?"
    r"(?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99\.9th"
)


def build() -> None:
    """Compile the consumer without a group, once."""
    compiled = _CLASSES / "AssignedConsumer.class"
    if compiled.exists() and compiled.stat().st_mtime >= _SOURCE.stat().st_mtime:
        return
    if shutil.which("javac") is None:
        raise LoadError("the Java loads need a compiler: apt install default-jdk-headless")
    command = ["javac", "-cp", java.classpath(), "-d", str(_CLASSES), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LoadError(f"javac:\n{done.stderr}")


def run(load: Load, bootstrap: str, topic: str) -> dict[str, float]:
    """Run one load to its end: messages, messages_per_s, bytes, and latencies if it has them."""
    match load.kind:
        case Kind.JAVA_PRODUCE:
            return parse_producer(_produce(load, bootstrap, topic), load.size_bytes)
        case Kind.JAVA_GROUP:
            return parse_consumer(_consume_in_group(load, bootstrap, topic))
        case Kind.JAVA_ASSIGN:
            arguments = (bootstrap, topic, str(load.partitions), str(load.count))
            return parse_assigned(run_class("AssignedConsumer", *arguments))
    raise AssertionError(f"{load.kind} is not a Java load")


def parse_producer(output: str, size_bytes: int) -> dict[str, float]:
    """The summary line: the last one that has percentiles."""
    found = list(_PRODUCED.finditer(output))
    if not found:
        raise LoadError(f"ProducerPerformance printed no summary:\n{output[-500:]}")
    numbers = {name: float(text) for name, text in found[-1].groupdict().items()}
    return {
        "messages": numbers["messages"],
        "messages_per_s": numbers["rate"],
        "bytes": numbers["messages"] * size_bytes,
        "publish_p50_ms": numbers["p50"],
        "publish_p99_ms": numbers["p99"],
        "publish_p999_ms": numbers["p999"],
    }


def parse_consumer(output: str) -> dict[str, float]:
    """Columns by their header, so that a new column does not shift the others.

    The rate is that of fetching alone: joining the group is not what is compared.
    """
    lines = [line for line in output.splitlines() if line.count(",") >= 9]
    if len(lines) < 2:
        raise LoadError(f"ConsumerPerformance printed no summary:\n{output[-500:]}")
    names = (name.strip() for name in lines[0].split(","))
    columns = dict(zip(names, (cell.strip() for cell in lines[1].split(",")), strict=True))
    return {
        "messages": float(columns["data.consumed.in.nMsg"]),
        "messages_per_s": float(columns["fetch.nMsg.sec"]),
        "bytes": float(columns["data.consumed.in.MB"]) * (1 << 20),
    }


def parse_assigned(output: str) -> dict[str, float]:
    """``messages bytes milliseconds``."""
    messages, nbytes, took_ms = (float(word) for word in output.split()[-3:])
    return {"messages": messages, "messages_per_s": messages * 1000 / took_ms, "bytes": nbytes}


def _produce(load: Load, bootstrap: str, topic: str) -> str:
    return run_class(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(load.count)),
        *("--record-size", str(load.size_bytes), "--throughput", "-1"),
        *("--bootstrap-server", bootstrap, "--command-property", f"acks={load.acks}"),
    )


def _consume_in_group(load: Load, bootstrap: str, topic: str) -> str:
    return run_class(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--topic", topic, "--num-records", str(load.count)),
        *("--bootstrap-server", bootstrap, "--timeout", "60000"),
    )


def run_class(main_class: str, *arguments: str, classpath: str = "") -> str:
    """Run a program of Kafka's, or ours, with the options of Kafka's scripts; what it prints.

    ``classpath`` is for programs of others.
    """
    where = classpath or f"{_CLASSES}:{java.classpath()}"
    command = [
        *("java", _HEAP, *java.PERFORMANCE_OPTIONS, f"-Dlog4j2.configurationFile={_LOGGING}"),
        *("-cp", where, main_class, *arguments),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise LoadError(f"{main_class}: not done in ten minutes") from None
    if done.returncode:
        raise LoadError(f"{main_class}:\n{(done.stdout + done.stderr)[-1000:]}")
    return done.stdout
