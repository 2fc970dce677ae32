r"""``dedupe``: topics into a topic, each message id once.

A producer that cannot tell whether a message arrived sends it again; the id that it put into the
message shows that it is the same.  Three promises:

1. no id is written twice within the time that ``--within`` says;
2. nothing but such repetitions is left out: neither a message without an id, nor one that comes
   late, however late it is;
3. what is written keeps its key, value, headers, timestamp and the order of its key.

Ids are remembered by the message's own time.  A time that is further away from the job's clock
than ``--within`` is taken as that far: a message from last week is remembered as if it came now,
and one from next year does not make the job forget.

    waystation pipeline dedupe --topics orders --to orders-once --id header:message-id \
        --within "10 minutes" --checkpoint state/orders-once
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from waystation.pipelines.failures import JobError
from waystation.pipelines.job import Job, follow, job_options, pairs, session, source
from waystation.pipelines.topic_job import (
    checkpoint_of,
    named,
    output_options,
    refuse_loops,
    sink_name,
    with_defaults,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["command", "dedupe", "id_expression"]

_ID, _PLACE, _AT = "__id", "__place", "__at"
_COLUMNS: Final = ("key", "value", "headers", "timestamp")
_IN_ORDER: Final = ("topic", "partition", "offset")
_ITSELF: Final = "concat_ws('-', topic, partition, offset)"
# Messages without a key have an order too, that of their partition.
_TOGETHER: Final = "coalesce(key, cast(concat(topic, '-', partition) AS binary))"


def dedupe(
    spark: "SparkSession",
    *,
    bootstrap: str,
    topics: str | Sequence[str] = (),
    pattern: str | None = None,
    to: str,
    checkpoint: str | Path,
    id: str = "key",  # noqa: A002 - what everybody calls it
    within: str = "10 minutes",
    sink_id: str | None = None,
    group: str | None = None,
    available_now: bool = False,
    every_s: float = 10.0,
    source_options: Mapping[str, object] | None = None,
    sink_options: Mapping[str, object] | None = None,
) -> "StreamingQuery":
    """Start copying ``topics`` into the topic ``to``, each ``id`` once; return the running query.

    ``id`` is ``key``, ``header:NAME``, ``json:PATH`` or an expression of Spark's over the columns
    of a message.  It is remembered for ``within``; two copies of a message that are further apart
    are two messages.
    """
    from waystation.pipelines.state_store import checked_duration, state_in_rocksdb
    from waystation.pipelines.topic_output import start_in_order
    from waystation.spark.progress import publish_progress

    names = named(topics)
    refuse_loops(names, pattern, to)
    within = checked_duration("--within", within)
    sink = sink_name("dedupe", names, pattern, to)
    read_from = {
        "bootstrap": bootstrap,
        "topics": names,
        "pattern": pattern,
        "group": group or sink_id or sink,
    }
    told = with_defaults(source_options or {}, startingOffsets="earliest", includeHeaders=True)
    frame = source(spark, read_from, stream=True, schema=None, **told)
    publish_progress(spark)
    with state_in_rocksdb(spark):
        return start_in_order(
            _once(frame, id_expression(id), within),
            together=_TOGETHER,
            order_by=_IN_ORDER,
            columns=[name for name in _COLUMNS if name in frame.columns],
            bootstrap=bootstrap,
            topic=to,
            checkpoint=checkpoint,
            sink_id=sink_id,
            first_sink_id=sink,
            available_now=available_now,
            every_s=every_s,
            name=sink_id or sink,
            options=sink_options,
        )


def id_expression(text: str) -> str:
    """What Spark calls the id that a user means."""
    kind, colon, name = text.partition(":")
    if not text.strip() or (colon and kind in ("header", "json") and not name.strip()):
        raise JobError(f"--id {text!r} names nothing: try key, header:message-id or json:order.id")
    if kind == "header" and colon:
        # The last of several with one name, as Kafka's clients take it.
        return f"try_element_at(filter(headers, one -> one.key = {_quoted(name)}), -1).value"
    if kind == "json" and colon:
        path = name if name.startswith("$") else f"$.{name}"
        return f"get_json_object(cast(value AS string), {_quoted(path)})"
    return text


def _quoted(text: str) -> str:
    return "'" + re.sub(r"(['\\])", r"\\\1", text) + "'"


def _once(frame: "DataFrame", identity: str, within: str) -> "DataFrame":
    """The first of each id; of copies in one partition that is the one that came first."""
    now = "current_timestamp()"
    # Never older than what the watermark can be by now: then nothing is ever too late.
    at = f"least(greatest(timestamp, {now} - INTERVAL '{within}'), {now})"
    return (
        frame.selectExpr("*", f"{identity} AS {_ID}", f"{at} AS {_AT}")
        # Without an id it is itself, and nothing else is.
        .selectExpr("*", f"if({_ID} IS NULL, {_ITSELF}, NULL) AS {_PLACE}")
        .withWatermark(_AT, within)
        .dropDuplicatesWithinWatermark([_ID, _PLACE])
    )


# --- the command ------------------------------------------------------------------------------

_EXAMPLE = """
\b
Example:
  waystation pipeline dedupe --topics orders --to orders-once --checkpoint ./state/once \\
    --id header:message-id --within "10 minutes"
  waystation pipeline dedupe --topics orders --to orders-once --checkpoint ./state/once \\
    --id json:order.id --available-now
"""


@click.command("dedupe", epilog=_EXAMPLE)
@click.option("--to", required=True, metavar="TOPIC", help="The output.")
@click.option(
    "--id",
    "id",
    default="key",
    show_default=True,
    metavar="EXPRESSION",
    help="What makes two messages the same: key, header:NAME, json:PATH, or Spark SQL over the "
    "columns of a message. What has none is copied as it is.",
)
@click.option(
    "--within",
    default="10 minutes",
    show_default=True,
    metavar="DURATION",
    help="For how long an id is remembered; longer takes more disk.",
)
@output_options
@job_options
def command(job: Job, sink_options: tuple[str, ...], **given: Any) -> None:
    """Copy topics into a topic, each message id once.

    What the checkpoint DIR has begun goes on where it was, also after a crash.
    """
    checkpoint = checkpoint_of(job)
    query = dedupe(
        session(job, f"dedupe {given['to']}"),
        **job.streaming(),
        checkpoint=checkpoint,
        sink_options=pairs(sink_options, "--sink-option"),
        **given,
    )
    follow(query, json_output=job.json_output)


if __name__ == "__main__":
    command()
