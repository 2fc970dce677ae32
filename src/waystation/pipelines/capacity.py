"""``capacity``: how much comes in, how fast that grows, and how long the disks will do.

Nothing is guessed that the brokers know, and nothing is read that need not be: messages a day
are differences of offsets at round times, sizes on disk come from the brokers, and only the size
of a record is measured on some of them, a few thousand per topic however large it is.

Offsets that hold no record (deleted by compaction, markers of transactions) count as messages,
and records whose timestamps go back count at the time that their partition had come to.

    waystation pipeline capacity --topics orders --retention-days 7 --replication-factor 3
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import click

from waystation.client.admin import Admin
from waystation.client.descriptions import LogDir
from waystation.client.offsets import MAX_TIMESTAMP
from waystation.model.ids import TopicPartition
from waystation.pipelines.capacity_estimate import (
    DAY_MS,
    Bucket,
    boundaries,
    buckets_between,
    offsets_json,
    sample_spans,
    trend,
)
from waystation.pipelines.capacity_report import CapacityReport, TopicCapacity
from waystation.pipelines.failures import JobError
from waystation.pipelines.job import Job, look_options, session
from waystation.pipelines.report import report_path, text_table, write_page
from waystation.pipelines.topic_log import Extent, ask, existing, found_topics, records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CapacityReport", "capacity", "command"]

_SAMPLE_RECORDS = 3_000
_PIECES = 3
_LOOKBACK_DAYS = 90
_AT_ONCE = 8


class _Known(NamedTuple):
    """What the brokers say about the topics."""

    extents: dict[TopicPartition, Extent]
    copies: dict[str, int]
    retention_ms: dict[str, int | None]
    oldest_ms: dict[TopicPartition, int]
    newest_ms: dict[TopicPartition, int]
    buckets: dict[str, tuple[Bucket, ...]]
    log_dirs: list[LogDir]


class _Sample(NamedTuple):
    """The sizes of some records of a topic."""

    records: int
    mean_bytes: float
    max_bytes: int


_NOTHING = _Sample(0, 0.0, 0)


def capacity(
    spark: "SparkSession",
    *,
    bootstrap: str,
    topics: str | Sequence[str] = (),
    pattern: str | None = None,
    to: str | None = None,
    retention_days: float = 7,
    replication_factor: int = 3,
    disk_bytes: int | None = None,
) -> CapacityReport:
    """Measure ``topics`` and estimate what they need.

    ``disk_bytes`` is what the topics may take in all their copies; left away, it is what they
    take now and what the brokers' disks have free.  With ``to``, the figures are added to a
    Delta table there, one row per topic, and a page with plots stands beside it.
    """
    if retention_days <= 0 or replication_factor < 1:
        raise JobError(
            f"retention_days is {retention_days} and replication_factor {replication_factor}: "
            "the first must be more than 0, the second at least 1"
        )
    names = found_topics(bootstrap, topics, pattern)
    taken_at = datetime.now(UTC)
    known = ask(bootstrap, lambda admin: _ask_all(admin, names, taken_at))
    samples = _sampled(spark, bootstrap, names, known.extents)
    sizes = _stored_bytes(known.log_dirs, known.extents)
    report = CapacityReport(
        taken_at,
        tuple(_topic(name, known, sizes, samples.get(name, _NOTHING)) for name in names),
        retention_days,
        replication_factor,
        _disk_bytes(known.log_dirs, sizes) if disk_bytes is None else disk_bytes,
    )
    if to is not None:
        _add_to_table(to, report)
        write_page(report_path(to), report.html())
    return report


def _topic(
    name: str, known: _Known, sizes: Mapping[TopicPartition, list[int]], sample: _Sample
) -> TopicCapacity:
    partitions = [where for where in known.extents if where.topic == name]
    olds = [known.oldest_ms[where] for where in partitions if where in known.oldest_ms]
    news = [known.newest_ms[where] for where in partitions if where in known.newest_ms]
    return TopicCapacity(
        topic=name,
        partitions=len(partitions),
        messages=sum(end - start for start, end in map(known.extents.__getitem__, partitions)),
        oldest_ms=min(olds, default=None),
        newest_ms=max(news, default=None),
        record_bytes=sample.mean_bytes,
        record_max_bytes=sample.max_bytes,
        sampled=sample.records,
        # Copies differ by what each has not deleted yet: the largest is what one takes.
        stored_bytes=sum(max(sizes.get(where, [0])) for where in partitions),
        copies=known.copies[name],
        retention_ms=known.retention_ms[name],
        trend=trend(known.buckets[name]),
        buckets=known.buckets[name],
    )


# --- what the brokers know ------------------------------------------------------------------


async def _ask_all(admin: Admin, names: Sequence[str], now: datetime) -> _Known:
    extents = await existing(admin, names)
    filled = [where for where, extent in extents.items() if extent.end > extent.start]
    now_ms = int(now.timestamp() * 1_000)
    horizon_ms = now_ms - _LOOKBACK_DAYS * DAY_MS
    firsts = await admin.list_offsets(dict.fromkeys(filled, max(horizon_ms, 0)))
    lasts = await admin.list_offsets(dict.fromkeys(filled, MAX_TIMESTAMP))
    oldest = {where: one.timestamp for where, one in firsts.items() if one.timestamp >= 0}
    newest = {
        where: min(one.timestamp, now_ms) for where, one in lasts.items() if one.timestamp >= 0
    }
    described = [await admin.describe_topic(name) for name in names]
    return _Known(
        extents=extents,
        copies={
            one.name: max((len(each.replicas) for each in one.partitions), default=1)
            for one in described
        },
        retention_ms={name: await _retention_ms(admin, name) for name in names},
        oldest_ms={where: int(ms) for where, ms in oldest.items()},
        newest_ms={where: int(ms) for where, ms in newest.items()},
        buckets=await _buckets(admin, names, extents, oldest, newest),
        log_dirs=await admin.describe_log_dirs(),
    )


async def _buckets(
    admin: Admin,
    names: Iterable[str],
    extents: Mapping[TopicPartition, Extent],
    oldest: Mapping[TopicPartition, int],
    newest: Mapping[TopicPartition, int],
) -> dict[str, tuple[Bucket, ...]]:
    """The messages of each topic between round times, the same for all of them."""
    timed = [where for where in oldest if where in newest]
    if not timed:
        return dict.fromkeys(names, ())
    times = boundaries(
        min(oldest[where] for where in timed),
        max(max(oldest[where], newest[where]) for where in timed),
    )
    few = asyncio.Semaphore(_AT_ONCE)

    async def offsets_at(time_ms: int) -> dict[TopicPartition, int]:
        async with few:
            found = await admin.list_offsets(dict.fromkeys(timed, time_ms))
        # Nothing is that young: everything came before.
        return {w: one.offset if one.offset >= 0 else extents[w].end for w, one in found.items()}

    at_edges = await asyncio.gather(*map(offsets_at, times))
    return {
        name: tuple(
            buckets_between(
                times,
                [sum(at for where, at in edge.items() if where.topic == name) for edge in at_edges],
            )
        )
        for name in names
    }


async def _retention_ms(admin: Admin, topic: str) -> int | None:
    option = (await admin.describe_configs(topic)).get("retention.ms")
    kept_ms = -1 if option is None or option.value is None else int(option.value)
    return None if kept_ms < 0 else kept_ms


def _stored_bytes(
    log_dirs: Iterable[LogDir], wanted: Mapping[TopicPartition, Extent]
) -> dict[TopicPartition, list[int]]:
    """The bytes of each copy of each partition."""
    sizes: dict[TopicPartition, list[int]] = {}
    for one in log_dirs:
        for where, size in one.partitions.items():
            if where in wanted:
                sizes.setdefault(where, []).append(size)
    return sizes


def _disk_bytes(
    log_dirs: Iterable[LogDir], sizes: Mapping[TopicPartition, list[int]]
) -> int | None:
    """What the topics take and what is free; none if a broker does not say."""
    usable = [one.usable_bytes for one in log_dirs if not one.error]
    if not usable or min(usable) < 0:
        return None
    return sum(usable) + sum(map(sum, sizes.values()))


# --- what only the records know ---------------------------------------------------------------


def _sampled(
    spark: "SparkSession",
    bootstrap: str,
    names: Sequence[str],
    extents: Mapping[TopicPartition, Extent],
) -> dict[str, _Sample]:
    """Sizes of records at the beginning, in the middle and at the end of each partition."""
    from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

    per_topic: dict[str, int] = {}
    for where in extents:
        per_topic[where.topic] = per_topic.get(where.topic, 0) + 1
    spans = {
        where: sample_spans(
            extent, max(_SAMPLE_RECORDS // per_topic[where.topic], _PIECES), _PIECES
        )
        for where, extent in extents.items()
    }
    frames = [
        records(
            spark,
            bootstrap,
            names,
            "key binary, value binary, topic string",
            startingOffsets=offsets_json({where: each[at].start for where, each in spans.items()}),
            endingOffsets=offsets_json({where: each[at].end for where, each in spans.items()}),
            # Retention may be faster than we are; then there is less of a sample.
            failOnDataLoss="false",
        )
        for at in range(_PIECES)
        if any(each[at].end > each[at].start for each in spans.values())
    ]
    if not frames:
        return {}
    size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(
        F.octet_length("value"), F.lit(0)
    )
    measured = (
        reduce(lambda one, other: one.unionAll(other), frames)
        .groupBy("topic")
        .agg(F.count("*").alias("n"), F.avg(size).alias("mean"), F.max(size).alias("most"))
    )
    return {row["topic"]: _Sample(row["n"], row["mean"], row["most"]) for row in measured.collect()}


# --- where it goes --------------------------------------------------------------------------


def _add_to_table(to: str, report: CapacityReport) -> None:
    """One row per topic; runs follow each other, so growth can be seen over months."""
    import pyarrow as pa
    from deltalake import write_deltalake

    rows = [
        {
            "taken_at": report.taken_at,
            "topic": one.topic,
            "partitions": one.partitions,
            "messages": one.messages,
            "messages_per_day": one.trend.per_day,
            "growth_per_day": one.trend.growth_per_day,
            "record_bytes": one.record_bytes,
            "stored_bytes": one.stored_bytes,
            "bytes_per_day": one.bytes_per_day,
            "retention_days": float(report.retention_days),
            "replication_factor": report.replication_factor,
            "storage_bytes": report.storage_of(one),
            "disk_bytes": report.disk_bytes,
            "days_left": report.days_left,
        }
        for one in report.topics
    ]
    schema = pa.schema(
        [
            ("taken_at", pa.timestamp("us", tz="UTC")),
            ("topic", pa.string()),
            ("partitions", pa.int32()),
            ("messages", pa.int64()),
            ("messages_per_day", pa.float64()),
            ("growth_per_day", pa.float64()),
            ("record_bytes", pa.float64()),
            ("stored_bytes", pa.int64()),
            ("bytes_per_day", pa.float64()),
            ("retention_days", pa.float64()),
            ("replication_factor", pa.int32()),
            ("storage_bytes", pa.float64()),
            ("disk_bytes", pa.int64()),
            ("days_left", pa.float64()),
        ]
    )
    write_deltalake(to, pa.Table.from_pylist(rows, schema=schema), mode="append")


_EXAMPLE = """
\b
Example:
  waystation pipeline capacity --topics orders --retention-days 30
  waystation pipeline capacity --topic-pattern '.*' --to ./lake/capacity --disk 2000000000000
"""


@click.command("capacity", epilog=_EXAMPLE)
@look_options
@click.option("--to", metavar="DIR", help="Add the figures to a table here, and a page beside it.")
@click.option(
    "--retention-days",
    type=click.FloatRange(0, min_open=True),
    default=7.0,
    show_default=True,
    metavar="DAYS",
    help="For how long records are to be kept.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="How many copies there are to be.",
)
@click.option(
    "--disk",
    "disk_bytes",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="What all copies may take.  [default: what they take, and what is free]",
)
def command(
    job: Job,
    to: str | None,
    retention_days: float,
    replication_factor: int,
    disk_bytes: int | None,
) -> None:
    """Show what topics take a day, how that grows, and how long the disks will do."""
    report = capacity(
        session(job, "capacity"),
        bootstrap=job.bootstrap,
        topics=job.topics,
        pattern=job.pattern,
        to=to,
        retention_days=retention_days,
        replication_factor=replication_factor,
        disk_bytes=disk_bytes,
    )
    if job.json_output:
        click.echo(json.dumps(report.as_dict()))
        return
    click.echo(text_table(report.table()))
    click.echo(report.span_sentence(), err=True)
    click.echo(report.disk_sentence(), err=True)
    if to is not None:
        click.echo(f"table {to}, page {report_path(to)}", err=True)


if __name__ == "__main__":
    command()
