"""``python -m benchmarks.spark_write``: how fast Spark writes into a topic of ours.

The same rows, made by Spark itself, go into a topic of the same broker, in ``local[2]``, in turn:

- ``waystation``, our sink, at least once and exactly once;
- Spark's own Kafka sink, which is at least once, where Maven Central is in reach: as it comes, and
  with batches as large as ours.

The ceiling is a Python sink that drops what it is handed.  Ratios are taken within a round, then
the median.  CPU time is that of Spark, its Python workers and the broker together: where other
work runs on the machine it says more than rows per second.  Exit code 0 when all was measured, 1
when rows are missing afterwards.  Falling short is a result, not an error.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from benchmarks.loads import librdkafka
from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers import java, machine, process_tree, spark_connector
from benchmarks.peers.broker import PeerMissingError, running
from benchmarks.peers.places import CACHE, RESULTS
from benchmarks.peers.waystation import WaystationPeer
from benchmarks.progress import Steps
from benchmarks.report.results import fresh_directory
from benchmarks.report.table import align
from benchmarks.spark.dropping import DroppingSink
from benchmarks.spark.reads import session

SIZES = {"100B": (100, 4_000_000), "1KB": (1_024, 1_000_000)}
CEILING = "ceiling"
OURS, EXACTLY_ONCE = "waystation, at-least-once", "waystation, exactly-once"
CONNECTOR, TUNED = "kafka sink", "kafka sink, large batches"
PARTITIONS = 4
KEYS = 10_000
_NUMBER_BYTES = 10
_QUICK_FACTOR = 0.25
_REQUIRED = 1.0


class Measured(NamedTuple):
    """One write."""

    rows_per_s: float
    cpu_us_per_row: float


Round = dict[str, Measured]  # by way


def main() -> int:
    """Fetch, write, count, report."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so nothing is left
    given = _arguments()
    jars = [] if given.no_connector else _connector()
    ways = [CEILING, OURS, EXACTLY_ONCE, *([CONNECTOR, TUNED] if jars else [])]
    librdkafka.build()
    facts = _facts(jars) | {"durability": given.durability, "keys": not given.no_keys}
    rounds: dict[str, list[Round]] = {}
    sizes = [given.only] if given.only else list(SIZES)
    with (
        running(WaystationPeer(), CACHE / "data" / "spark", given.durability) as broker,
        session(jars, CACHE / "spark") as spark,
        Steps(len(sizes) * (given.rounds + 1) * len(ways)) as steps,
    ):
        spark.dataSource.register(DroppingSink)
        for size in sizes:
            value_bytes, count = SIZES[size]
            rows = int(count * given.scale)
            frame = _frame(spark, rows, value_bytes, with_keys=not given.no_keys)
            for number in range(given.rounds + 1):  # the first is the warm-up
                measured = {}
                for way in ways if number % 2 == 0 else ways[::-1]:
                    steps.step(f"{size}: {way}, " + (f"round {number}" if number else "warm-up"))
                    topic = f"write-{value_bytes}-{number}-{ways.index(way)}"
                    measured[way] = _measured(frame, rows, way, broker.bootstrap, topic)
                    if way != CEILING:
                        _check(spark, broker.bootstrap, topic, rows)
                if number:
                    rounds.setdefault(size, []).append(measured)
    text = _table(rounds)
    directory = Path(given.out) if given.out else fresh_directory(RESULTS / "spark", date.today())
    _write(directory, facts, rounds, text)
    print(f"\n{text}\n\nwritten to {directory}", flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_write", description=__doc__)
    parser.add_argument("--rounds", type=int, help="rounds that count (default 5, quick 2)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds of a quarter the rows")
    parser.add_argument("--scale", type=float, help="factor on the rows")
    parser.add_argument("--only", choices=SIZES, help="records of this size alone")
    parser.add_argument("--no-connector", action="store_true", help="without Spark's own sink")
    parser.add_argument("--no-keys", action="store_true", help="rows without a key")
    parser.add_argument("--durability", choices=("disk", "memory"), default="disk")
    parser.add_argument("--out", help="where results go (default benchmarks/results/spark/<date>)")
    given = parser.parse_args()
    given.rounds = given.rounds or (2 if given.quick else 5)
    given.scale = given.scale or (_QUICK_FACTOR if given.quick else 1.0)
    return given


def _connector() -> list[Path]:
    try:
        return spark_connector.fetch_connector()
    except PeerMissingError as error:
        print(f"Spark's Kafka sink is not measured: {error}", flush=True)
        return []


def _facts(jars: list[Path]) -> dict[str, object]:
    facts = machine.facts(CACHE)
    facts |= {"pyspark": version("pyspark"), "java": java.java_version()}
    facts["connector"] = spark_connector.connector_version() if jars else "not measured"
    if machine.busy(facts):
        print("other work runs on this machine: trust ratios, not absolute figures", flush=True)
    return facts


def _frame(spark: SparkSession, rows: int, value_bytes: int, *, with_keys: bool) -> DataFrame:
    """Rows that cost Spark little to make: mostly the same letters, each with another number."""
    rest = f"repeat('x', {value_bytes - _NUMBER_BYTES})"
    number = f"lpad(CAST(id AS STRING), {_NUMBER_BYTES}, '0')"
    value = f"CAST(concat({number}, {rest}) AS BINARY) AS value"
    key = f"CAST(CAST(id % {KEYS} AS STRING) AS BINARY) AS key"
    numbers = spark.range(0, rows, 1, 2)
    return numbers.selectExpr(key, value) if with_keys else numbers.selectExpr(value)


def _measured(frame: DataFrame, rows: int, way: str, bootstrap: str, topic: str) -> Measured:
    """How fast ``frame`` is written, Spark's planning and the commit included."""
    if way != CEILING:
        librdkafka.create_topic(bootstrap, topic, PARTITIONS)
    began, cpu_s = time.perf_counter(), process_tree.cpu_seconds(os.getpid())
    _WAYS[way](frame, bootstrap, topic)
    took_s = time.perf_counter() - began
    cpu_s = process_tree.cpu_seconds(os.getpid()) - cpu_s
    return Measured(rows / took_s, cpu_s / rows * 1e6)


def _into_nothing(frame: DataFrame, bootstrap: str, topic: str) -> None:
    frame.write.format(DroppingSink.name()).mode("append").save()


def _ours(frame: DataFrame, bootstrap: str, topic: str, **options: str) -> None:
    writer = frame.write.format("waystation").option("bootstrap.servers", bootstrap)
    writer.options(**options).option("topic", topic).mode("append").save()


def _exactly_once(frame: DataFrame, bootstrap: str, topic: str) -> None:
    _ours(frame, bootstrap, topic, sinkId=topic)


def _connectors(frame: DataFrame, bootstrap: str, topic: str, **options: str) -> None:
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer.options(**options).option("topic", topic).mode("append").save()


def _tuned(frame: DataFrame, bootstrap: str, topic: str) -> None:
    options = {"kafka.batch.size": str(1 << 19), "kafka.linger.ms": "20"}
    _connectors(frame, bootstrap, topic, **options)


_WAYS: dict[str, Callable[[DataFrame, str, str], None]] = {
    CEILING: _into_nothing,
    OURS: _ours,
    EXACTLY_ONCE: _exactly_once,
    CONNECTOR: _connectors,
    TUNED: _tuned,
}


def _check(spark: SparkSession, bootstrap: str, topic: str, rows: int) -> None:
    reader = spark.read.format("waystation").option("bootstrap.servers", bootstrap)
    found = reader.option("subscribe", topic).schema("offset LONG").load().count()
    if found != rows:
        sys.exit(f"{topic}: {found:,} of {rows:,} rows are there")


def _table(rounds: dict[str, list[Round]]) -> str:
    columns = ("of ceiling", "of kafka sink", "of it tuned")
    lines = [("write", "way", "rows/s", "MB/s", "CPU µs/row", *columns, "required")]
    for size, measured in rounds.items():
        for way in (one for one in _WAYS if one in measured[0]):
            rate = statistics.median(one[way].rows_per_s for one in measured)
            cpu_us = statistics.median(one[way].cpu_us_per_row for one in measured)
            lines.append(
                (
                    size,
                    way,
                    f"{rate:,.0f}",
                    f"{rate * SIZES[size][0] / 1e6:,.0f}",
                    f"{cpu_us:.2f}",
                    *(_shown(measured, way, to) for to in (CEILING, CONNECTOR, TUNED)),
                    _verdict(measured, way),
                )
            )
    return align(lines)


def _ratio(measured: list[Round], way: str, to: str) -> float:
    return statistics.median(one[way].rows_per_s / one[to].rows_per_s for one in measured)


def _shown(measured: list[Round], way: str, to: str) -> str:
    return f"{_ratio(measured, way, to):.2f}" if to in measured[0] else "-"


def _verdict(measured: list[Round], way: str) -> str:
    if way not in (OURS, EXACTLY_ONCE) or CONNECTOR not in measured[0]:
        return ""
    met = _ratio(measured, way, CONNECTOR) >= _REQUIRED
    return f">= {_REQUIRED}x: {'pass' if met else 'FALLS SHORT'}"


def _write(
    directory: Path, facts: dict[str, object], rounds: dict[str, list[Round]], text: str
) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    shown = {
        size: [{way: one._asdict() for way, one in each.items()} for each in measured]
        for size, measured in rounds.items()
    }
    result = {"machine": facts, "rounds": shown}
    (directory / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    heading = ", ".join(f"{name} {value}" for name, value in facts.items())
    (directory / "table.txt").write_text(f"{heading}\n\n{text}\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LoadError, PeerMissingError) as problem:
        sys.exit(f"bench: {problem}")
