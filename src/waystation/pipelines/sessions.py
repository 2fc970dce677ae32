r"""``sessions``: which messages of a key belong together, told when they have ended.

A session is a run of messages of one key with no pause longer than ``--gap`` between them.  It is
told once, when it is over: when the topics have moved on by the gap and by ``--late`` since its
last message.  Until then it is remembered (``state_store.py``).  Promises:

1. every message with a key is in one session, unless it came later than ``--late`` after younger
   ones; such messages are left out, and the command says how many;
2. every session is told once, and those of one key in their order;
3. whatever is killed, the sessions are the same.

    waystation pipeline sessions --topics clicks --to visits --gap "30 minutes" \
        --checkpoint state/visits
"""

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

__all__ = ["command", "late_messages", "sessions"]

_BY, _AT = "__by", "__at"
_KEY: Final = "key"
_SIZE: Final = "ifnull(octet_length(key), 0L) + ifnull(octet_length(value), 0L)"
# A message from the future must not end the sessions of everybody else.
_NOT_FROM_THE_FUTURE: Final = "least(timestamp, current_timestamp())"
_ALWAYS: Final = (
    f"min({_AT}) AS start",
    f"max({_AT}) AS `end`",
    "count(*) AS messages",
    f"sum({_SIZE}) AS bytes",
)
_JSON_OPTIONS: Final = (
    "map('timeZone', 'UTC', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX\")"
)


def sessions(
    spark: "SparkSession",
    *,
    bootstrap: str,
    topics: str | Sequence[str] = (),
    pattern: str | None = None,
    to: str | None = None,
    lake: str | Path | None = None,
    checkpoint: str | Path,
    gap: str = "30 minutes",
    late: str = "10 minutes",
    by: str = _KEY,
    figures: Sequence[str] = (),
    sink_id: str | None = None,
    group: str | None = None,
    available_now: bool = False,
    every_s: float = 10.0,
    source_options: Mapping[str, object] | None = None,
    sink_options: Mapping[str, object] | None = None,
) -> "StreamingQuery":
    """Start telling the sessions of ``topics``, to a topic or to a table; return the running query.

    ``by`` says whose sessions they are, in Spark's SQL; messages for which it is null have none.
    ``figures`` are more aggregates of a session, such as ``max(offset) AS last_offset``.  To the
    topic ``to`` a session goes as JSON, to the table ``lake`` as a row.
    """
    from waystation.pipelines.state_store import checked_duration, state_in_rocksdb
    from waystation.spark.progress import publish_progress

    names = named(topics)
    if (to is None) == (lake is None):
        raise JobError("say where sessions go, once: --to TOPIC or --lake DIR")
    refuse_loops(names, pattern, *(() if to is None else (to,)))
    gap, late = checked_duration("--gap", gap), checked_duration("--late", late)
    sink = sink_name("sessions", names, pattern, to or Path(str(lake)).name)
    read_from = {
        "bootstrap": bootstrap,
        "topics": names,
        "pattern": pattern,
        "group": group or sink_id or sink,
    }
    told = with_defaults(source_options or {}, startingOffsets="earliest", includeHeaders=True)
    frame = source(spark, read_from, stream=True, schema=None, **told)
    ended = _ended(frame, by, gap, late, figures)
    publish_progress(spark)
    more: dict[str, Any] = {
        "checkpoint": checkpoint,
        "sink_id": sink_id,
        "first_sink_id": sink,
        "name": sink_id or sink,
        "available_now": available_now,
        "every_s": every_s,
        "options": sink_options,
    }
    with state_in_rocksdb(spark):
        if to is not None:
            return _into_topic(ended, bootstrap, to, more)
        return _into_table(ended, str(lake), more)


def _ended(frame: "DataFrame", by: str, gap: str, late: str, figures: Sequence[str]) -> "DataFrame":
    """A row for each session that is over: its key, its figures."""
    from pyspark.sql.functions import expr, session_window

    known = frame.selectExpr("*", f"{by} AS {_BY}", f"{_NOT_FROM_THE_FUTURE} AS {_AT}")
    windows = (
        known.where(f"{_BY} IS NOT NULL")
        .withWatermark(_AT, late)
        .groupBy(known[_BY].alias(_KEY), session_window(_AT, gap))
    )
    told = windows.agg(*(expr(one) for one in (*_ALWAYS, *figures)))
    return told.drop("session_window")


def _into_topic(
    ended: "DataFrame", bootstrap: str, to: str, more: Mapping[str, Any]
) -> "StreamingQuery":
    from pyspark.sql.types import BinaryType

    from waystation.pipelines.topic_output import start_in_order

    fields = ", ".join(
        f"cast({_KEY} AS string) AS {_KEY}" if name == _KEY else f"`{name}`"
        for name in ended.columns
    )
    rows = ended.selectExpr(
        _KEY if ended.schema[_KEY].dataType == BinaryType() else f"cast({_KEY} AS string) AS key",
        f"to_json(struct({fields}), {_JSON_OPTIONS}) AS value",
        "`end` AS timestamp",
        "start",
    )
    return start_in_order(
        rows,
        together=_KEY,
        order_by=("start",),
        columns=("key", "value", "timestamp"),
        bootstrap=bootstrap,
        topic=to,
        **more,
    )


def _into_table(ended: "DataFrame", lake: str, more: Mapping[str, Any]) -> "StreamingQuery":
    from waystation.pipelines.sessions_table import start_into_table

    return start_into_table(ended, lake=lake, **more)


def late_messages(query: "StreamingQuery") -> int:
    """How many messages were left out for being late, as far as the query remembers."""
    return sum(
        operator["numRowsDroppedByWatermark"]
        for progress in query.recentProgress
        for operator in progress["stateOperators"]
    )


# --- the command ------------------------------------------------------------------------------

_EXAMPLE = """
\b
Example:
  waystation pipeline sessions --topics clicks --to visits --checkpoint ./state/visits
  waystation pipeline sessions --topics clicks --lake ./lake/visits \\
    --checkpoint ./state/visits --gap "5 minutes" --figure "max(offset) AS last_offset"
"""


@click.command("sessions", epilog=_EXAMPLE)
@click.option("--to", metavar="TOPIC", help="The topic that is told of sessions, as JSON.")
@click.option("--lake", metavar="DIR", help="The table that has a row for each, instead.")
@click.option(
    "--gap",
    default="30 minutes",
    show_default=True,
    metavar="DURATION",
    help="The pause that ends a session.",
)
@click.option(
    "--late",
    default="10 minutes",
    show_default=True,
    metavar="DURATION",
    help="How much later than younger messages one may come. Sessions are told by so much later.",
)
@click.option(
    "--by",
    default=_KEY,
    show_default=True,
    metavar="EXPRESSION",
    help="Whose sessions, in Spark SQL over the columns of a message.",
)
@click.option(
    "--figure",
    "figures",
    multiple=True,
    metavar="AGGREGATE",
    help="One more figure of a session, in Spark SQL, e.g. 'max(offset) AS last_offset'; again.",
)
@output_options
@job_options
def command(job: Job, sink_options: tuple[str, ...], **given: Any) -> None:
    """Tell which messages of a key belong together, when their session is over.

    What the checkpoint DIR has begun goes on where it was, also after a crash.
    """
    checkpoint = checkpoint_of(job)
    query = sessions(
        session(job, f"sessions {given['to'] or given['lake'] or ''}".strip()),
        **job.streaming(),
        checkpoint=checkpoint,
        sink_options=pairs(sink_options, "--sink-option"),
        **given,
    )
    follow(query, json_output=job.json_output)
    if late := late_messages(query):
        click.echo(f"left out for being later than --late {given['late']}: {late}", err=True)


if __name__ == "__main__":
    command()
