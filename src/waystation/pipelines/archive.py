"""Topics to a lake table, or to a topic: every record once, whatever dies on the way.

The table has a topic's own columns and ``date``, the UTC day of the timestamp, and is partitioned
by topic and date.  Two places know how far the archive is, and both must agree:

1. Spark's checkpoint says which offsets a batch has.  The sink's id is pinned beside it, so that a
   batch that is repeated after a crash is recognised and dropped by the table.
2. The table says which offsets each commit holds.  An archive that starts with a fresh checkpoint
   goes on where the table ends: losing the checkpoint neither doubles nor loses a record.

Typed values (``values.py``) that do not fit go to a second table beside the first, with their
bytes and the reason.  How far the job is shows as the offsets of a group.

With a topic in place of a lake, records are copied as they are (``archive_copy.py``).
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waystation.pipelines.job import (
    Job,
    follow,
    job_options,
    pairs,
    session,
    source,
    subscription,
)
from waystation.pipelines.topic_job import checkpoint_of, output_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from waystation.pipelines.values import ValueSchema

__all__ = ["archive", "command", "quarantine_of"]

PARTITION_BY = "topic,date"

_TABLE_FORMATS = ("delta", "parquet", "iceberg")
_VALUE_FORMATS = ("binary", "text", "json", "avro", "confluent-avro", "protobuf")

# By whole numbers and without the session's time zone: a day must not depend on who archives.
_DAY_MICROS = 86_400_000_000
_DATE = (
    f"date_from_unix_date(cast((unix_micros(timestamp) - pmod(unix_micros(timestamp), "
    f"{_DAY_MICROS})) div {_DAY_MICROS} as int))"
)


def archive(
    spark: "SparkSession",
    *,
    bootstrap: str,
    topics: str | Sequence[str],
    lake: str | Path,
    checkpoint: str | Path | None = None,
    table_format: str = "delta",
    value_format: str = "binary",
    schema: "str | Path | StructType | None" = None,
    message: str | None = None,
    group: str | None = None,
    available_now: bool = False,
    every_s: float = 10.0,
    source_options: Mapping[str, object] | None = None,
    table_options: Mapping[str, object] | None = None,
) -> "StreamingQuery":
    """Start writing ``topics`` into the table ``lake``, and return the running query.

    ``schema`` is a file, or for JSON a Spark schema; JSON values without one get that of the
    first records, pinned in the checkpoint.  For topics by pattern, give none and
    ``source_options={"subscribePattern": ...}``.
    """
    from waystation.pipelines.archive_start import begin, whole_path
    from waystation.pipelines.archive_values import value_schema
    from waystation.pipelines.checkpoint import Checkpoint
    from waystation.spark.progress import publish_progress

    lake = whole_path(str(lake))
    notes = Checkpoint(spark, str(checkpoint or f"{lake}-checkpoint"))
    read_from = {
        "bootstrap": bootstrap,
        "topics": tuple(topics.split(",") if isinstance(topics, str) else topics),
        "group": group or default_group(lake),
    }
    told, into = dict(source_options or {}), dict(table_options or {})
    values = value_schema(spark, notes, read_from, told, (value_format, schema, message))
    start = begin(spark, notes, lake, read_from, told, into)
    frame = source(spark, read_from, stream=True, includeHeaders=True, **start.options)
    frame = frame.selectExpr("*", f"{_DATE} as date")
    if values.value_format != "binary":
        frame = _typed(frame, values)
        into["quarantinePath"] = quarantine_of(lake)
    publish_progress(spark)
    return _started(
        frame,
        {
            "path": lake,
            "checkpointLocation": notes.folder,
            "sinkId": start.sink_id,
            "format": table_format,
            "partitionBy": PARTITION_BY,
            **into,
        },
        available_now=available_now,
        every_s=every_s,
    )


def quarantine_of(lake: str) -> str:
    """The table of what did not fit into ``lake``."""
    return f"{lake.rstrip('/')}-quarantine"


def default_group(lake: str) -> str:
    """The group whose offsets show how far the archive is."""
    name = posixpath.basename(lake.rstrip("/")) or "lake"
    return f"archive-{re.sub(r'[^A-Za-z0-9._-]', '-', name)}"


def _started(
    frame: "DataFrame", options: Mapping[str, object], *, available_now: bool, every_s: float
) -> "StreamingQuery":
    writer = frame.writeStream.format("waystation.table").outputMode("append")
    writer = writer.queryName(f"archive {options['path']}")
    for name, value in options.items():
        writer = writer.option(name, str(value))
    if available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(every_s * 1_000)} milliseconds").start()


def _typed(frame: "DataFrame", values: "ValueSchema") -> "DataFrame":
    """The frame with values that have types, and two columns for those that have not."""
    from waystation.pipelines.values import decode_batches, with_typed_value

    columns = with_typed_value(frame.schema, values)
    return frame.mapInArrow(lambda batches: decode_batches(values, batches), columns)


# --- the command ------------------------------------------------------------------------------

_EXAMPLE = """
\b
Example:
  waystation pipeline archive --topics orders --lake ./lake/orders --available-now
  waystation pipeline archive --topics orders --lake ./lake/orders --value-format json
  waystation pipeline archive --topics orders --to orders-copy --checkpoint ./orders-copy
"""


@click.command("archive", epilog=_EXAMPLE)
@click.option("--lake", metavar="DIR", help="The table's folder.")
@click.option("--to", metavar="TOPIC", help="A topic in place of a table; {topic} is the one read.")
@click.option("--to-bootstrap", metavar="HOST:PORT", help="Its brokers.  [default: --bootstrap]")
@click.option("--keep-partitions", is_flag=True, help="Copy to the partitions of old.")
@click.option(
    "--format",
    "table_format",
    type=click.Choice(_TABLE_FORMATS),
    default="delta",
    show_default=True,
    help="The kind of table.",
)
@click.option(
    "--value-format",
    type=click.Choice(_VALUE_FORMATS),
    default="binary",
    show_default=True,
    help="How to read values. What does not fit goes to the table DIR-quarantine.",
)
@click.option(
    "--schema",
    type=click.Path(exists=True, dir_okay=False),
    help="For json a Spark schema, .avsc, .proto or a descriptor set.  [json: inferred]",
)
@click.option("--message", metavar="NAME", help="The message, of several in a .proto.")
@click.option(
    "--table-option",
    "table_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the table, e.g. storage.aws_region=eu-west-1; again.",
)
@output_options
@job_options
def command(job: Job, lake: str | None, to: str | None, **given: Any) -> None:
    """Write topics to a table of a lake or to a topic, each record once.

    Without --checkpoint, the progress of a table is kept in DIR-checkpoint.
    """
    if (lake is None) == (to is None):
        raise click.UsageError("say where to write, once: --lake DIR or --to TOPIC")
    given["table_options"] = pairs(given["table_options"], "--table-option")
    given["sink_options"] = pairs(given["sink_options"], "--sink-option")
    if to is None:
        _refuse_unused(_OF_TOPICS, given, "--to")
    else:
        _refuse_unused(_OF_TABLES, given, "--lake")
        checkpoint_of(job)
    spark = session(job, f"archive {lake or to}")
    try:
        if to is None:
            query = _to_lake(spark, job, str(lake), given)
        else:
            query = _to_topic(spark, job, to, given)
        follow(query, json_output=job.json_output)
    finally:
        spark.stop()


_OF_TABLES: Mapping[str, object] = {
    "table_format": "delta",
    "value_format": "binary",
    "schema": None,
    "message": None,
    "table_options": {},
}
"""What makes sense with --lake only, as it is when it is left away."""
_OF_TOPICS: Mapping[str, object] = {
    "to_bootstrap": None,
    "keep_partitions": False,
    "sink_id": None,
    "sink_options": {},
}
"""The same with --to."""


_SPELLED = {
    "table_format": "--format",
    "table_options": "--table-option",
    "sink_options": "--sink-option",
}


def _refuse_unused(unused: Mapping[str, object], given: Mapping[str, Any], wanted: str) -> None:
    """An option that would do nothing is a mistake."""
    for name, when_left_away in unused.items():
        if given[name] != when_left_away:
            spelled = _SPELLED.get(name, f"--{name.replace('_', '-')}")
            raise click.UsageError(f"{spelled} goes with {wanted} only: leave it away")


def _to_lake(
    spark: "SparkSession", job: Job, lake: str, given: Mapping[str, Any]
) -> "StreamingQuery":
    return archive(
        spark,
        bootstrap=job.bootstrap,
        topics=job.topics,
        lake=lake,
        checkpoint=job.checkpoint,
        group=job.group,
        available_now=job.available_now,
        every_s=job.every_s,
        source_options={**subscription(job.topics, job.pattern), **job.source_options()},
        **{name: given[name] for name in _OF_TABLES},
    )


def _to_topic(
    spark: "SparkSession", job: Job, to: str, given: Mapping[str, Any]
) -> "StreamingQuery":
    from waystation.pipelines.archive_copy import copy_topics

    return copy_topics(
        spark,
        **job.streaming(),
        to=to,
        checkpoint=checkpoint_of(job),
        **{name: given[name] for name in _OF_TOPICS},
    )


if __name__ == "__main__":
    command()
