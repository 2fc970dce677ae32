"""``archive --to``: topics into a topic, of the same cluster or another, each message once.

Key, value, timestamp and headers stay, and headers tell where a message came from, as for
``replay`` (``replay_rows.py``) but with ``archive.`` in front.  Messages of one partition keep
their order, and so do those of one key.  With ``{topic}`` in its name the output is a topic for
each that is read; these must exist.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from waystation.pipelines.job import source
from waystation.pipelines.replay_rows import TOPIC_NAME, copies
from waystation.pipelines.topic_job import named, refuse_loops, sink_name, with_defaults
from waystation.pipelines.topic_log import check_target, found_topics
from waystation.pipelines.topic_output import start_into_topic
from waystation.spark.progress import publish_progress

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["copy_topics"]

_KIND = "archive"


def copy_topics(
    spark: "SparkSession",
    *,
    bootstrap: str,
    topics: str | Sequence[str] = (),
    pattern: str | None = None,
    to: str,
    to_bootstrap: str | None = None,
    checkpoint: "str | Path",
    group: str | None = None,
    keep_partitions: bool = False,
    sink_id: str | None = None,
    available_now: bool = False,
    every_s: float = 10.0,
    source_options: Mapping[str, object] | None = None,
    sink_options: Mapping[str, object] | None = None,
) -> "StreamingQuery":
    """Start writing ``topics`` into ``to``, and return the running query.

    With ``keep_partitions`` messages go to the partition that they were in, not to that of their
    key.
    """
    names, into = named(topics), to_bootstrap or bootstrap
    found = found_topics(bootstrap, names, pattern)
    outputs = dict.fromkeys(to.replace(TOPIC_NAME, name) for name in found)
    if into == bootstrap:
        refuse_loops(names, pattern, *outputs)
    for output in outputs:
        check_target(into, output, "--to")
    name = sink_id or sink_name(_KIND, names, pattern, to)
    read_from = {
        "bootstrap": bootstrap,
        "topics": names,
        "pattern": pattern,
        "group": group or name,
    }
    told = with_defaults(source_options or {}, startingOffsets="earliest")
    frame = source(spark, read_from, stream=True, includeHeaders=True, **told)
    publish_progress(spark)
    return start_into_topic(
        copies(frame, kind=_KIND, run=name, to=to, keep_partitions=keep_partitions),
        bootstrap=into,
        topic=None if TOPIC_NAME in to else to,
        checkpoint=checkpoint,
        sink_id=sink_id,
        first_sink_id=name,
        available_now=available_now,
        every_s=every_s,
        name=f"archive into {to}",
        options=sink_options,
    )
