"""Windows of ``metrics`` as messages of a topic: one for each window that a batch has amended.

A message has the whole window as JSON, and a key that is the window's own: in a compacted topic
the last one stays, which is what the table says.  The batch's number goes along, so that a batch
that Spark repeats after a crash is recognised by the sink and dropped.  If the crash came between
table and topic, the table has the batch already, and the windows come from there: they are what
they were, since no later batch has begun.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from waystation.pipelines.job import FORMAT, as_option
from waystation.pipelines.metrics_table import MetricsTable, row_of
from waystation.pipelines.metrics_windows import Windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MetricsTopic", "messages_of"]


class MetricsTopic(NamedTuple):
    """Where windows go."""

    bootstrap: str
    topic: str
    options: Mapping[str, object]

    def publish(
        self, spark: "SparkSession", query: str, batch: int, messages: list[tuple[str, str]]
    ) -> None:
        """Write the messages of one batch, unless they are there."""
        told: dict[str, object] = {
            "bootstrap.servers": self.bootstrap,
            "topic": self.topic,
            **self.options,
            "sinkId": f"metrics-{query}",
            "batchId": batch,
        }
        frame = spark.createDataFrame(messages, "key string, value string").coalesce(1)
        writer = frame.write.format(FORMAT).mode("append")
        writer.options(**{name: as_option(value) for name, value in told.items()}).save()


def messages_of(table: MetricsTable, windows: Windows, top_keys: int) -> list[tuple[str, str]]:
    """Key and value of each window as the table has it now, in the order of time."""
    figures = table.figures(windows)
    rows = [row_of(where, figures[where], table.window_ms) for where in sorted(figures)]
    return [_message(row, top_keys) for row in rows]


def _message(row: Mapping[str, Any], top_keys: int) -> tuple[str, str]:
    """Everything but what only the table needs in order to go on counting."""
    told = {name: _as_json(value) for name, value in row.items() if name not in ("date", "ages")}
    told["top_keys"] = row["top_keys"][:top_keys]
    return f"{row['topic']} {told['window_start']}", json.dumps(told)


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value
