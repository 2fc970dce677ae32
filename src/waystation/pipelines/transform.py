r"""``transform``: topics into a topic, by SQL or by a function, each message once.

What a batch makes of its messages is written in transactions that are decided together with the
batch (``topic_output.py``): killed anywhere, the job goes on with nothing lost and nothing doubled.

Order is kept per key.  One task reads one partition, from its first offset to its last, and writes
what becomes of it in that order.  SQL that brings rows of several partitions together, such as a
join or an aggregation, has no such order to keep.

    waystation pipeline transform --topics orders --to refunds --checkpoint state/refunds \
        --sql "SELECT key, value FROM orders WHERE get_json_object(value, '$.kind') = 'refund'"
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waystation.pipelines.failures import JobError
from waystation.pipelines.job import Job, follow, job_options, pairs, session, source
from waystation.pipelines.topic_job import (
    checkpoint_of,
    named,
    output_options,
    refuse_loops,
    refuse_missing,
    sink_name,
    with_defaults,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

__all__ = ["command", "transform"]

_VALUE_FORMATS = ("binary", "text", "json", "avro", "confluent-avro", "protobuf")
_SPLITS = "minpartitions"


def transform(
    spark: "SparkSession",
    *,
    bootstrap: str,
    topics: str | Sequence[str] = (),
    pattern: str | None = None,
    to: str | None,
    checkpoint: str | Path,
    sql: str | None = None,
    function: "str | Callable[[DataFrame], DataFrame] | None" = None,
    value_format: str = "binary",
    schema: "str | Path | StructType | None" = None,
    message: str | None = None,
    dead_letters: str | None = None,
    output_mode: str = "append",
    sink_id: str | None = None,
    group: str | None = None,
    available_now: bool = False,
    every_s: float = 10.0,
    source_options: Mapping[str, object] | None = None,
    sink_options: Mapping[str, object] | None = None,
) -> "StreamingQuery":
    """Start writing what becomes of ``topics`` into the topic ``to``; return the running query.

    ``sql`` or ``function`` says what; the result has the sink's columns.  Without ``to`` each row
    of it names its topic.  ``schema`` is a file, or for JSON a Spark schema; JSON values without
    one get that of the first messages, pinned in the checkpoint.
    """
    from waystation.pipelines.archive_values import value_schema
    from waystation.pipelines.checkpoint import Checkpoint
    from waystation.pipelines.topic_output import start_into_topic
    from waystation.pipelines.transform_rows import as_rows
    from waystation.pipelines.transform_values import typed, with_dead_letters
    from waystation.spark.progress import publish_progress

    names = named(topics)
    told: dict[str, Any] = dict(source_options or {})
    _refuse_nonsense(sql, function, value_format, dead_letters, told)
    refuse_loops(names, pattern, *(one for one in (to, dead_letters) if one))
    if dead_letters is not None:
        refuse_missing(bootstrap, dead_letters)
    sink = sink_name("transform", names, pattern, to)
    read_from = {
        "bootstrap": bootstrap,
        "topics": names,
        "pattern": pattern,
        "group": group or sink_id or sink,
    }
    notes = Checkpoint(spark, str(checkpoint))
    values = value_schema(spark, notes, read_from, told, (value_format, schema, message))
    told = with_defaults(told, startingOffsets="earliest", includeHeaders=True)
    frame = source(spark, read_from, stream=True, schema=None, **told)
    if value_format == "binary":
        rows = as_rows(_made_of(spark, frame, names, sql, function), to)
    else:
        messages, misfits = typed(frame, values, set_aside=dead_letters is not None)
        rows = as_rows(_made_of(spark, messages, names, sql, function), to)
        rows = with_dead_letters(rows, to, misfits, dead_letters)
    publish_progress(spark)
    return start_into_topic(
        rows,
        bootstrap=bootstrap,
        topic=to,
        by_column=value_format != "binary",
        checkpoint=checkpoint,
        sink_id=sink_id,
        first_sink_id=sink,
        available_now=available_now,
        every_s=every_s,
        output_mode=output_mode,
        name=sink_id or sink,
        options=sink_options,
    )


def _refuse_nonsense(
    sql: str | None,
    function: object,
    value_format: str,
    dead_letters: str | None,
    source_options: Mapping[str, object],
) -> None:
    if (sql is None) == (function is None):
        raise JobError("say what becomes of messages, once: --sql 'SELECT ...' or --function")
    if dead_letters is not None and value_format == "binary":
        raise JobError("--dead-letters is for --value-format: bytes fit as they are")
    if _SPLITS in (name.lower() for name in source_options):
        raise JobError(
            "minPartitions lets several tasks read one partition, and messages would overtake "
            "each other. Remedy: leave it away"
        )


def _made_of(
    spark: "SparkSession",
    messages: "DataFrame",
    topics: Sequence[str],
    sql: str | None,
    function: "str | Callable[[DataFrame], DataFrame] | None",
) -> "DataFrame":
    from waystation.pipelines.transform_rows import by_function, by_sql, function_at

    if sql is not None:
        return by_sql(spark, sql, messages, topics)
    assert function is not None, "one of them is given"
    return by_function(function_at(function) if isinstance(function, str) else function, messages)


# --- the command ------------------------------------------------------------------------------

_EXAMPLE = """
\b
Example:
  waystation pipeline transform --topics orders --to large --checkpoint ./state/large \\
    --value-format json --sql "SELECT key, value FROM orders WHERE value.amount > 100"
  waystation pipeline transform --topics orders --to clean --checkpoint ./state/clean \\
    --function cleaning.py:clean
"""


@click.command("transform", epilog=_EXAMPLE)
@click.option("--to", metavar="TOPIC", help="The output.  [default: the result's column topic]")
@click.option(
    "--sql",
    metavar="SELECT",
    help="What to write: columns value, key, headers, partition, timestamp. Each topic is a "
    "table of its name; all together are messages.",
)
@click.option(
    "--function",
    metavar="PLACE:NAME",
    help="A function from frame to frame instead: package.module:name or file.py:name.",
)
@click.option(
    "--value-format",
    type=click.Choice(_VALUE_FORMATS),
    default="binary",
    show_default=True,
    help="How to read values.",
)
@click.option(
    "--schema",
    type=click.Path(exists=True, dir_okay=False),
    help="For json a Spark schema, .avsc, .proto or a descriptor set.  [json: inferred]",
)
@click.option("--message", metavar="NAME", help="The message, of several in a .proto.")
@click.option(
    "--dead-letters",
    metavar="TOPIC",
    help="Where messages go whose values do not fit.  [default: the job ends]",
)
@click.option(
    "--output-mode",
    type=click.Choice(("append", "update")),
    default="append",
    show_default=True,
    help="Of aggregations: write a row when it is final, or whenever it changes.",
)
@output_options
@job_options
def command(job: Job, sink_options: tuple[str, ...], **given: Any) -> None:
    """Write what becomes of topics into a topic, each message once.

    What the checkpoint DIR has begun goes on where it was, also after a crash.
    """
    checkpoint = checkpoint_of(job)
    query = transform(
        session(job, f"transform {given['to'] or ''}".strip()),
        **job.streaming(),
        checkpoint=checkpoint,
        sink_options=pairs(sink_options, "--sink-option"),
        **given,
    )
    follow(query, json_output=job.json_output)


if __name__ == "__main__":
    command()
