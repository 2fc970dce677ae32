"""``python -m benchmarks.spark``: how fast Spark reads a topic of ours, and what it could read.

Three ways to read the same topic into a sink that keeps nothing, in ``local[2]``, in turn:

- the ceiling: a Python data source that hands over one Arrow batch again and again;
- ``waystation``, our data source;
- Spark's own Kafka connector, on the same broker, where Maven Central is in reach.

Ratios are taken within a round, then the median.  Exit code 0 when all was measured, 1 when
rows were missing or a read failed.  Falling short is a result, not an error.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.loads import librdkafka
from benchmarks.loads.catalog import Kind, Load
from benchmarks.loads.librdkafka import LoadError
from benchmarks.peers import java, machine, spark_connector
from benchmarks.peers.broker import PeerMissingError, running
from benchmarks.peers.places import CACHE, RESULTS
from benchmarks.peers.waystation import WaystationPeer
from benchmarks.progress import Steps
from benchmarks.report.results import fresh_directory
from benchmarks.report.table import align
from benchmarks.spark import reads
from benchmarks.spark.reads import CEILING, CONNECTOR, OURS

SIZES = {"100B": (100, 6_000_000), "1KB": (1_024, 1_500_000)}
PARTITIONS = 2
_QUICK_FACTOR = 0.25
_OF_CEILING, _OF_CONNECTOR = 0.8, 1.0

Rounds = dict[str, list[dict[str, float]]]  # size -> per round: way -> rows/s


def main() -> int:
    """Fetch, fill, read, report."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so nothing is left
    given = _arguments()
    jars = _connector() if not given.no_connector else []
    ways = [CEILING, OURS, CONNECTOR] if jars else [CEILING, OURS]
    librdkafka.build()
    facts = _facts(jars)
    scratch = CACHE / "spark"
    rounds: Rounds = {}
    sizes = [given.only] if given.only else list(SIZES)
    with (
        running(WaystationPeer(), CACHE / "data" / "spark", "memory") as broker,
        reads.session(jars, scratch) as spark,
        Steps(len(sizes) * (1 + (given.rounds + 1) * len(ways))) as steps,
    ):
        for size in sizes:
            value_bytes, count = SIZES[size]
            rows = int(count * given.scale)
            steps.step(f"{size}: produce {rows:,} records")
            topic = _filled(broker.bootstrap, value_bytes, rows)
            if (found := _count(spark, broker.bootstrap, topic)) != rows:
                print(f"{size}: {found:,} of {rows:,} rows were read", file=sys.stderr)
                return 1
            for number in range(given.rounds + 1):  # the first is the warm-up
                measured = {}
                for way in ways if number % 2 == 0 else ways[::-1]:
                    steps.step(f"{size}: {way}, " + (f"round {number}" if number else "warm-up"))
                    read = reads.frame(spark, way, broker.bootstrap, topic, rows, value_bytes)
                    measured[way] = reads.rows_per_s(read, rows)
                if number:
                    rounds.setdefault(size, []).append(measured)
    text = _table(rounds)
    directory = Path(given.out) if given.out else fresh_directory(RESULTS / "spark", date.today())
    _write(directory, facts, rounds, text)
    print(f"\n{text}\n\nwritten to {directory}", flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--rounds", type=int, help="rounds that count (default 5, quick 2)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds of a quarter the rows")
    parser.add_argument("--scale", type=float, help="factor on the rows")
    parser.add_argument("--only", choices=SIZES, help="records of this size alone")
    parser.add_argument("--no-connector", action="store_true", help="without Spark's own connector")
    parser.add_argument("--out", help="where results go (default benchmarks/results/spark/<date>)")
    given = parser.parse_args()
    given.rounds = given.rounds or (2 if given.quick else 5)
    given.scale = given.scale or (_QUICK_FACTOR if given.quick else 1.0)
    return given


def _connector() -> list[Path]:
    try:
        return spark_connector.fetch_connector()
    except PeerMissingError as error:
        print(f"Spark's Kafka connector is not measured: {error}", flush=True)
        return []


def _facts(jars: list[Path]) -> dict[str, object]:
    facts = machine.facts(CACHE)
    facts |= {"pyspark": version("pyspark"), "java": java.java_version()}
    facts["connector"] = spark_connector.connector_version() if jars else "not measured"
    if machine.busy(facts):
        print("other work runs on this machine: trust ratios, not absolute figures", flush=True)
    return facts


def _filled(bootstrap: str, value_bytes: int, rows: int) -> str:
    topic = f"read-{value_bytes}"
    librdkafka.create_topic(bootstrap, topic, PARTITIONS)
    load = Load("fill", Kind.PRODUCE, value_bytes, PARTITIONS, "1", rows)
    librdkafka.run(load, bootstrap, topic)
    return topic


def _count(spark: SparkSession, bootstrap: str, topic: str) -> int:
    """Of one narrow column; reads everything once, so that the page cache is warm too."""
    reader = spark.read.format("waystation").option("bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).schema("offset LONG").load().count()


def _table(rounds: Rounds) -> str:
    header = ("read into noop", "way", "rows/s", "MB/s", "of ceiling", "of connector", "required")
    lines = [header]
    for size, measured in rounds.items():
        for way in measured[0]:
            rate = statistics.median(one[way] for one in measured)
            lines.append(
                (
                    size,
                    way,
                    f"{rate:,.0f}",
                    f"{rate * SIZES[size][0] / 1e6:,.0f}",
                    f"{_ratio(measured, way, CEILING):.2f}",
                    f"{_ratio(measured, way, CONNECTOR):.2f}" if CONNECTOR in measured[0] else "-",
                    _verdict(size, measured) if way == OURS else "",
                )
            )
    return align(lines)


def _ratio(measured: list[dict[str, float]], way: str, to: str) -> float:
    return statistics.median(one[way] / one[to] for one in measured)


def _verdict(size: str, measured: list[dict[str, float]]) -> str:
    """80 % of the ceiling; beside the connector as fast as it, which 1 KB need not be then."""
    of_ceiling = _ratio(measured, OURS, CEILING) >= _OF_CEILING
    if CONNECTOR not in measured[0]:
        return f">= {_OF_CEILING} of ceiling: {'pass' if of_ceiling else 'FALLS SHORT'}"
    of_connector = _ratio(measured, OURS, CONNECTOR) >= _OF_CONNECTOR
    met = of_ceiling and (of_connector or size == "1KB")
    bound = f">= {_OF_CEILING} of ceiling" + (f", >= {_OF_CONNECTOR}x" if size != "1KB" else "")
    return f"{bound}: {'pass' if met else 'FALLS SHORT'}"


def _write(directory: Path, facts: dict[str, object], rounds: Rounds, text: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    result = {"machine": facts, "rows_per_s": rounds}
    (directory / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    heading = ", ".join(f"{name} {value}" for name, value in facts.items())
    (directory / "table.txt").write_text(f"{heading}\n\n{text}\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LoadError, PeerMissingError) as problem:
        sys.exit(f"bench: {problem}")
