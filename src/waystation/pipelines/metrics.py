"""``metrics``: what went through topics, window by window, in a table and on a page.

Per window and topic: messages, bytes, both per second, how old records were when they were seen
(median, 99th percentile, maximum), how many came late, and the most frequent keys.

A window is that of the record's own timestamp, and is amended whenever another of its records
comes: nothing is dropped for being late, nothing is counted twice (``metrics_table.py``), and
whatever order records come in, the figures are the same (``metrics_windows.py``).  Late is what
comes more than ``late_s`` after the youngest record of its topic; it is counted, and counts.

Windows may go to a topic as well, as messages for programs that wait for them
(``metrics_topic.py``); each amendment is one message, seen once.

    waystation pipeline metrics --topics orders --to lake/metrics --available-now
"""

import posixpath
import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from waystation.pipelines.failures import JobError
from waystation.pipelines.job import FORMAT, Job, follow, job_options, pairs, session, subscription
from waystation.pipelines.metrics_partials import PARTIAL, figures_of, partials
from waystation.pipelines.metrics_report import render
from waystation.pipelines.metrics_table import MetricsTable
from waystation.pipelines.metrics_topic import MetricsTopic, messages_of
from waystation.pipelines.metrics_windows import Asked, Windows
from waystation.pipelines.topic_job import named, refuse_loops
from waystation.pipelines.topic_log import check_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["command", "metrics", "render"]

_COLUMNS = "key binary, value binary, topic string, timestamp timestamp"
_SIZE = "ifnull(octet_length(key), 0L) + ifnull(octet_length(value), 0L) AS bytes"
_KEYS_AT_LEAST = 100
# The driver adds up the windows of a batch: this bounds how many there can be.
_OFFSETS_PER_TRIGGER = 2_000_000
_RENDER_EVERY_S = 10.0


def metrics(
    spark: "SparkSession",
    *,
    bootstrap: str,
    topics: str | Sequence[str] = (),
    pattern: str | None = None,
    to: str | Path,
    checkpoint: str | Path | None = None,
    window_s: float = 60,
    late_s: float = 600,
    top_keys: int = 10,
    group: str | None = None,
    available_now: bool = False,
    every_s: float = 10.0,
    report: bool = True,
    source_options: Mapping[str, object] | None = None,
    to_topic: str | None = None,
    to_bootstrap: str | None = None,
    sink_options: Mapping[str, object] | None = None,
) -> "StreamingQuery":
    """Start measuring ``topics`` into the table ``to``, and return the running query.

    With ``report``, a page with plots stands beside the table and is kept up to date.  With
    ``to_topic``, every window that is amended is a message there too.
    """
    to = str(to).rstrip("/")
    window_ms = round(window_s * 1_000)
    if window_ms < 1 or late_s < 0 or top_keys < 0:
        raise JobError(
            f"window_s is {window_s}, late_s {late_s}, top_keys {top_keys}: the first must be at "
            "least 0.001, the others not negative"
        )
    folder = str(checkpoint or f"{to}-checkpoint")
    into = to_bootstrap or bootstrap
    if to_topic is not None:
        if into == bootstrap:
            refuse_loops(named(topics), pattern, to_topic)
        check_target(into, to_topic, "--to-topic")
    _check_together(spark, folder, to)
    MetricsTable.made(to, window_ms)
    told = {
        "bootstrap.servers": bootstrap,
        **subscription(topics, pattern),
        "groupId": group or default_group(to),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": _OFFSETS_PER_TRIGGER,
        **(source_options or {}),
    }
    reader = spark.readStream.format(FORMAT).schema(_COLUMNS)
    frame = reader.options(**{name: str(value) for name, value in told.items()}).load()
    _publish_progress(spark)
    topic = None
    if to_topic is not None:
        topic = MetricsTopic(into, to_topic, sink_options or {})
    amendment = _Amendment(to, window_ms, round(late_s * 1_000), top_keys, report, topic)
    writer = (
        frame.writeStream.foreachBatch(amendment)
        .queryName(f"metrics {to}")
        .option("checkpointLocation", folder)
    )
    if available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(every_s * 1_000)} milliseconds").start()


def _check_together(spark: "SparkSession", checkpoint: str, to: str) -> None:
    """Checkpoint and table must both be old, or both be new."""
    from waystation.pipelines.checkpoint import Checkpoint

    begun = Checkpoint(spark, checkpoint).read("metadata")  # where Spark keeps a query's id
    table = MetricsTable.open(to) if MetricsTable.is_there(to) else None
    if begun is not None and table is None:
        raise JobError(
            f"--checkpoint {checkpoint} is of a job that has begun, but there is no table at {to}, "
            "and what was counted would be missing: give it the table's place, or another folder"
        )
    if table is not None and table.query not in (None, begun and begun["id"]):
        raise JobError(
            f"the table at {to} was filled with another checkpoint than {checkpoint}, and with "
            "this one everything would be counted again: use the other, or give --to another folder"
        )


def default_group(to: str) -> str:
    """The group whose offsets show how far the job is."""
    name = posixpath.basename(to.rstrip("/")) or "metrics"
    return f"metrics-{re.sub(r'[^A-Za-z0-9._-]', '-', name)}"


class _Amendment:
    """What is done with each batch; runs on the driver."""

    def __init__(
        self,
        to: str,
        window_ms: int,
        late_ms: int,
        top_keys: int,
        report: bool,
        topic: MetricsTopic | None = None,
    ) -> None:
        self._to, self._topic = to, topic
        self._window_ms, self._late_ms = window_ms, late_ms
        self._top_keys = top_keys
        self._capacity = max(_KEYS_AT_LEAST, 10 * top_keys)
        self._report = report
        self._rendered_at = float("-inf")

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        """Add the batch to the table, unless it is in it, and then to the topic."""
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query, "a batch runs inside its query"
        table = MetricsTable.open(self._to)
        table.claim(query)
        amended = table.has(query, batch)
        if self._topic is not None or not amended:
            windows = self._windows(frame, table)
            if windows and not amended:
                table.amend(query, batch, windows, self._capacity)
            if windows and self._topic is not None:
                messages = messages_of(MetricsTable.open(self._to), windows, self._top_keys)
                self._topic.publish(frame.sparkSession, query, batch, messages)
        self._render()

    def _windows(self, frame: "DataFrame", table: MetricsTable) -> Windows:
        """Tasks measure their records; only figures come to the driver."""
        now_ms = time.time_ns() // 1_000_000
        asked = Asked(
            window_ms=self._window_ms,
            seen_ms=now_ms,
            late_before_ms={
                # A record from the future must not make everything else late.
                topic: min(newest, now_ms) - self._late_ms
                for topic, newest in table.newest_ms().items()
            },
            capacity=self._capacity,
        )
        # Values stay in the JVM: only their sizes are of interest.
        measured = frame.selectExpr("key", _SIZE, "topic", "timestamp")
        windows = Windows()
        found = measured.mapInArrow(partial(partials, asked=asked), PARTIAL).toArrow()
        for some in found.to_batches():
            for row in some.to_pylist():
                windows.add((row["window"], row["topic"]), figures_of(row), self._capacity)
        return windows

    def _render(self) -> None:
        if self._report and time.monotonic() - self._rendered_at >= _RENDER_EVERY_S:
            render(self._to, top_keys=self._top_keys, running=True)
            self._rendered_at = time.monotonic()


def _publish_progress(spark: "SparkSession") -> None:
    from waystation.spark.progress import publish_progress

    publish_progress(spark)


_EXAMPLE = """
\b
Example:
  waystation pipeline metrics --topics orders --to ./lake/metrics
  waystation pipeline metrics --topics orders --to ./lake/metrics --window 3600 --available-now
  waystation pipeline metrics --topics orders --to ./lake/metrics --to-topic orders-metrics
"""


@click.command("metrics", epilog=_EXAMPLE)
@job_options
@click.option("--to", required=True, metavar="DIR", help="The table's folder.")
@click.option(
    "--window",
    "window_s",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a window is.",
)
@click.option(
    "--late",
    "late_s",
    type=click.FloatRange(0),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="From when on a record counts as late; it is counted in its window all the same.",
)
@click.option(
    "--top-keys",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    metavar="N",
    help="How many keys to tell of each topic.",
)
@click.option("--no-report", is_flag=True, help="Make no page beside the table.")
@click.option("--to-topic", metavar="TOPIC", help="A topic for every window that is amended.")
@click.option("--to-bootstrap", metavar="HOST:PORT", help="Its brokers.  [default: --bootstrap]")
@click.option(
    "--sink-option",
    "sink_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the sink, e.g. compression=zstd; again.",
)
def command(
    job: Job, to: str, top_keys: int, no_report: bool, sink_options: tuple[str, ...], **given: Any
) -> None:
    """Measure topics: messages, bytes, age and top keys per window, as table and page."""
    query = metrics(
        session(job, "metrics"),
        **job.streaming(),
        to=to,
        checkpoint=job.checkpoint,
        top_keys=top_keys,
        report=not no_report,
        sink_options=pairs(sink_options, "--sink-option"),
        **given,
    )
    follow(query, json_output=job.json_output)
    if not no_report:
        page = render(to, top_keys=top_keys)
        click.echo(f"table {to}, page {page}", err=True)


if __name__ == "__main__":
    command()
