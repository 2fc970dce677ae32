"""``audit``: compares log and lake, offset for offset.

What the source reads from the log is compared with what the lake's table and its quarantine hold
together, so that offsets without a record (compacted, markers, aborted transactions) are missing
on both sides and nobody calls them lost.  Every offset of the log up to where the archive has
come must be in the lake once, with the same content, and after the offsets before it in its
file.  Where both have the bytes, keys, values, times and headers are compared by a 64-bit hash;
a typed value is not.

The comparison runs in Spark: the driver sees numbers per partition and the first differences.

    waystation pipeline audit --topics orders --lake lake/orders

Exit codes: 0 clean, 1 there are differences, 2 they could not be compared.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from waystation.client.admin import Admin
from waystation.model.ids import TopicPartition
from waystation.pipelines.audit_lake import (
    PLACE,
    PLACED,
    Lake,
    Recorded,
    Seen,
    opened,
    opened_if_there,
    reached,
    recorded,
    rows_of,
    seen,
)
from waystation.pipelines.audit_report import (
    DIFFERENCES,
    MEANINGS,
    AuditReport,
    Finding,
    PartitionAudit,
    Verdict,
    collected,
)
from waystation.pipelines.failures import JobError, readable
from waystation.pipelines.job import Job, look_options, session
from waystation.pipelines.report import text_table
from waystation.pipelines.topic_log import Extent, ask, existing, extents, found_topics, records

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["AuditReport", "audit", "command"]

# What is compared, with the type that a lake has it in if it has it as it was sent.
_CONTENT = {
    "key": "binary",
    "value": "binary",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
_TRIES = 3
_SAME, _DIFFERENT, _NOT_COMPARED = 0, 1, 2


class _Log(NamedTuple):
    """What the brokers say."""

    extents: dict[TopicPartition, Extent]
    committed: dict[TopicPartition, int]
    """How far the archive's group has come, if one was named."""
    compacted: frozenset[str]


def audit(
    spark: "SparkSession",
    *,
    bootstrap: str,
    topics: str | Sequence[str] = (),
    pattern: str | None = None,
    lake: str | Path,
    group: str | None = None,
    complete: bool = False,
    content: bool = True,
    examples: int = 20,
) -> AuditReport:
    """Compare ``topics`` with the table ``lake`` and its quarantine.

    How far the archive has come is what its table says; with ``group`` also what that group has
    committed; with ``complete``, the log's end.  What comes after that is pending, not lost.
    ``content=False`` compares offsets only, and reads neither keys nor values.
    """
    names = found_topics(bootstrap, topics, pattern)
    path = str(lake).rstrip("/")
    # Table, quarantine, log: each has whatever the one before it has.
    table = opened(path)
    quarantine = opened_if_there(f"{path}-quarantine")
    lakes = [table, *([] if quarantine is None else [quarantine])]
    told = [recorded(one.commits, names) for one in lakes]
    found = seen(spark, lakes, names, told)
    past = recorded(reached(table, quarantine), names)
    for _ in range(_TRIES):
        log = ask(bootstrap, lambda admin: _asked(admin, names, group))
        partitions = _known(log, past, found, complete)
        per_offset = _compared(spark, bootstrap, lakes, names, partitions, log, content)
        counts = _counted(per_offset)
        findings = _findings(per_offset, examples) if _any_difference(counts) else []
        if _same_starts(extents(bootstrap, names), log.extents):
            return collected(
                path,
                partitions,
                counts,
                [*_reordered(found), *findings][:examples],
                _remarks(lakes, told, found, counts),
            )
    raise JobError(
        f"retention deleted records of {', '.join(names)} during each of {_TRIES} comparisons: "
        "try again when it is quiet, or keep records for longer (retention.ms, retention.bytes)"
    )


# --- the log ----------------------------------------------------------------------------------


async def _asked(admin: Admin, names: Sequence[str], group: str | None) -> _Log:
    committed = {} if group is None else await admin.group_offsets(group)
    compacted = []
    for name in names:
        policy = (await admin.describe_configs(name)).get("cleanup.policy")
        if policy is not None and "compact" in (policy.value or ""):
            compacted.append(name)
    return _Log(
        await existing(admin, names),
        {where: one.offset for where, one in committed.items() if one.offset >= 0},
        frozenset(compacted),
    )


def _same_starts(
    now: Mapping[TopicPartition, Extent], before: Mapping[TopicPartition, Extent]
) -> bool:
    """Whether retention was quiet meanwhile."""
    return all(now[where].start == one.start for where, one in before.items() if where in now)


def _known(
    log: _Log,
    past: Mapping[TopicPartition, Recorded],
    found: Sequence[Mapping[TopicPartition, Seen]],
    complete: bool,
) -> dict[TopicPartition, PartitionAudit]:
    """The partitions of the log, each with how far the archive has come.

    Rows of the quarantine do not tell: it may have a batch that the table gets next.
    """
    known = {}
    for where, (start, end) in log.extents.items():
        ends = [log.committed.get(where, 0), end if complete else 0]
        if where in past:
            ends.append(past[where].last + 1)
        if where in found[0]:
            ends.append(found[0][where].last + 1)
        quarantined = sum(each[where].rows for each in found[1:] if where in each)
        reordered = sum(each[where].reordered for each in found if where in each)
        known[where] = PartitionAudit(
            *where, start, end, max(ends), quarantined=quarantined, reordered=reordered
        )
    return known


# --- the comparison -----------------------------------------------------------------------------


def _compared(
    spark: "SparkSession",
    bootstrap: str,
    lakes: Sequence[Lake],
    names: Sequence[str],
    partitions: Mapping[TopicPartition, PartitionAudit],
    log: _Log,
    content: bool,
) -> "DataFrame":
    """One row per offset that log or lake has, and the verdict on it."""
    from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

    shared = [_shared(lake) if content else [] for lake in lakes]
    needed = [name for name in _CONTENT if any(name in each for each in shared)]
    log_rows = records(
        spark,
        bootstrap,
        names,
        _columns(needed),
        includeHeaders=str("headers" in needed).lower(),
        # Retention is noticed afterwards, and then all of this is done again.
        failOnDataLoss="false",
    )
    sides = [
        log_rows.select(*PLACE, F.lit(1).alias("logged"), F.lit(0).alias("kept"), *_hashes(shared))
    ]
    for number, lake in enumerate(lakes):
        rows = rows_of(spark, lake, _columns(shared[number]), names)
        hashes = [
            _digest(columns) if at == number else F.lit(None).cast("long")
            for at, columns in enumerate(shared)
        ]
        sides.append(
            rows.select(
                *PLACE,
                F.lit(0).alias("logged"),
                F.lit(1).alias("kept"),
                *(hashed.alias(f"hash{at}") for at, hashed in enumerate(hashes)),
            )
        )
    joined = reduce(lambda one, other: one.unionAll(other), sides).groupBy(*PLACE)
    per_offset = joined.agg(
        F.sum("logged").alias("logged"),
        F.sum("kept").alias("kept"),
        # The log has a hash for each table; with that of the table's row they must be one.
        *(F.min(f"hash{at}").alias(f"least{at}") for at in range(len(lakes))),
        *(F.max(f"hash{at}").alias(f"most{at}") for at in range(len(lakes))),
    )
    bounds = _bounds(spark, partitions, log)
    return per_offset.join(F.broadcast(bounds), ["topic", "partition"], "left").select(
        *PLACE, _verdict(len(lakes)).alias("verdict")
    )


def _shared(lake: Lake) -> list[str]:
    """The columns that the lake has as they were sent."""
    return [name for name, kind in _CONTENT.items() if lake.types.get(name) == kind]


def _columns(names: Sequence[str]) -> str:
    return ", ".join([PLACED, *(f"{name} {_CONTENT[name]}" for name in names)])


def _hashes(shared: Sequence[Sequence[str]]) -> "Iterator[Column]":
    return (_digest(columns).alias(f"hash{at}") for at, columns in enumerate(shared))


def _digest(columns: Sequence[str]) -> "Column":
    """A hash of a record's content, in which nothing and empty are not the same."""
    from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

    parts = [F.lit(0)]
    for name in columns:
        if _CONTENT[name] == "binary":
            parts += [F.coalesce(F.octet_length(name), F.lit(-1)), F.col(name)]
        elif name == "headers":
            parts.append(F.when(F.size(name) > 0, F.to_json(name)))
        else:
            parts.append(F.col(name))
    return F.xxhash64(*parts)


def _bounds(
    spark: "SparkSession", partitions: Mapping[TopicPartition, PartitionAudit], log: _Log
) -> "DataFrame":
    rows = [
        (*where, one.log_start, one.log_end, one.archived_end, where.topic in log.compacted)
        for where, one in partitions.items()
    ]
    return spark.createDataFrame(
        rows,
        "topic string, partition int, log_start long, log_end long, archived_end long, "
        "compacted boolean",
    )


def _verdict(lakes: int) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

    same = " AND ".join(f"least{at} = most{at}" for at in range(lakes))
    return F.expr(
        f"""CASE
        WHEN kept > 1 THEN '{Verdict.DOUBLED}'
        WHEN logged > 0 AND kept = 0 AND offset < archived_end THEN '{Verdict.LOST}'
        WHEN logged > 0 AND kept = 0 THEN '{Verdict.PENDING}'
        WHEN logged > 0 AND {same} THEN '{Verdict.MATCHED}'
        WHEN logged > 0 THEN '{Verdict.DIFFERENT}'
        WHEN offset < log_start OR (compacted AND offset < log_end)
            THEN '{Verdict.BEYOND_RETENTION}'
        ELSE '{Verdict.EXTRA}' END"""
    )


def _counted(per_offset: "DataFrame") -> list[tuple[str, int, Verdict, int]]:
    counted = per_offset.groupBy("topic", "partition", "verdict").count().collect()
    return [(row[0], row[1], Verdict(row[2]), row[3]) for row in counted]


def _any_difference(counts: Sequence[tuple[str, int, Verdict, int]]) -> bool:
    return any(verdict in DIFFERENCES for _, _, verdict, _ in counts)


def _findings(per_offset: "DataFrame", limit: int) -> list[Finding]:
    """The first runs of offsets with the same fault."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

    of_kind = Window.partitionBy("topic", "partition", "verdict").orderBy("offset")
    wrong = per_offset.where(F.col("verdict").isin([str(one) for one in DIFFERENCES]))
    runs = (
        wrong.withColumn("run", F.col("offset") - F.row_number().over(of_kind))
        .groupBy("topic", "partition", "verdict", "run")
        .agg(F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("n"))
        .orderBy("topic", "partition", "first")
        .limit(limit)
    )
    return [
        Finding(Verdict(row["verdict"]), row["topic"], row["partition"], *row[4:])
        for row in runs.collect()
    ]


# --- what the lake alone shows ------------------------------------------------------------------


def _reordered(found: Sequence[Mapping[TopicPartition, Seen]]) -> Iterator[Finding]:
    for each in found:
        for where, one in sorted(each.items()):
            if one.reordered:
                yield Finding(
                    Verdict.REORDERED,
                    *where,
                    one.first_reordered,
                    one.last_reordered,
                    one.reordered,
                )


def _remarks(
    lakes: Sequence[Lake],
    told: Sequence[Mapping[TopicPartition, Recorded]],
    found: Sequence[Mapping[TopicPartition, Seen]],
    counts: Sequence[tuple[str, int, Verdict, int]],
) -> list[str]:
    """What commits and files say against each other, where no single offset shows it."""
    faulty = {
        TopicPartition(topic, partition)
        for topic, partition, verdict, _ in counts
        if verdict in DIFFERENCES
    }
    remarks = []
    for lake, known, there in zip(lakes, told, found, strict=True):
        for where, one in sorted(known.items()):
            rows = there[where].recorded_rows if where in there else 0
            if one.out_of_order:
                remarks.append(
                    f"{where}: {one.out_of_order} commits of {lake.path} step back in offsets"
                )
            elif rows != one.rows and where not in faulty:
                remarks.append(
                    f"{where}: commits of {lake.path} recorded {one.rows} rows from offset "
                    f"{one.first} to {one.last}, and there are {rows}"
                )
    return remarks


# --- the command --------------------------------------------------------------------------------


_EXAMPLE = """
\b
Example:
  waystation pipeline audit --topics orders --lake ./lake/orders
  waystation pipeline audit --topics orders --lake ./lake/orders --complete --json
"""


@click.command("audit", epilog=_EXAMPLE)
@look_options
@click.option("--lake", required=True, metavar="DIR", help="The table that `archive` writes.")
@click.option("--group", metavar="NAME", help="Count what this group has committed as archived.")
@click.option(
    "--complete", is_flag=True, help="Nothing may be pending: all of the log must be there."
)
@click.option("--offsets-only", is_flag=True, help="Compare offsets, not keys and values.")
@click.option(
    "--examples",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="How many differences to show.",
)
def command(job: Job, lake: str, complete: bool, offsets_only: bool, examples: int) -> None:
    """Compare log and lake: lost, doubled, reordered, different.

    Exit codes: 0 clean, 1 there are differences, 2 they could not be compared.
    """
    try:
        report = audit(
            session(job, "audit"),
            bootstrap=job.bootstrap,
            topics=job.topics,
            pattern=job.pattern,
            lake=lake,
            group=job.group,
            complete=complete,
            content=not offsets_only,
            examples=examples,
        )
    except Exception as error:  # whatever it was, a scheduler must not take it for a difference
        click.echo(f"audit: {readable(error)}", err=True)
        sys.exit(_NOT_COMPARED)
    if job.json_output:
        click.echo(json.dumps(report.as_dict()))
    else:
        _show(report)
    sys.exit(_SAME if report.clean else _DIFFERENT)


def _show(report: AuditReport) -> None:
    click.echo(text_table(report.table()))
    for finding in report.findings:
        click.echo(f"  {finding}: {MEANINGS[finding.verdict]}")
    click.echo(report.sentence(), err=True)


if __name__ == "__main__":
    command()
