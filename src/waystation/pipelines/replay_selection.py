"""Which messages a replay sends, as the user says it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from waystation.pipelines.failures import JobError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from waystation.pipelines.replay_plan import Extent
    from waystation.pipelines.replay_source import Source

__all__ = ["Counted", "Selection", "chosen", "count", "source_of"]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which messages: of ``lake``, of ``topics``, or of these topics in that lake.

    ``since`` and ``until`` are explained in ``replay_range.py``, ``where`` is a condition of Spark
    SQL over the columns of the source.  ``version`` is that of the table, by default the newest.
    """

    bootstrap: str = "localhost:9092"
    topics: str | Sequence[str] = ()
    pattern: str | None = None
    lake: str | Path | None = None
    version: int | None = None
    since: str | None = None
    until: str | None = None
    where: str | None = None
    source_options: Mapping[str, object] = field(default_factory=dict)
    table_options: Mapping[str, object] = field(default_factory=dict)

    def asked(self) -> dict[str, Any]:
        """What must be the same whenever a replay is started, by the names of the options."""
        return {
            "lake": None if self.lake is None else _whole_path(self.lake),
            "version": self.version,
            "topics": _names(self.topics),
            "topic-pattern": self.pattern,
            "from": self.since,
            "until": self.until,
            "where": self.where,
        }


def source_of(
    spark: "SparkSession", selection: Selection, pinned: Mapping[str, Any] | None = None
) -> "Source":
    """What is read: as it is now, or as it was when it was ``pinned``."""
    from waystation.pipelines.replay_range import parse_bounds
    from waystation.pipelines.replay_source import Lake, Topics
    from waystation.pipelines.topic_log import found_topics

    _refuse_other_bounds(selection.source_options)
    known = pinned or {}
    bounds = parse_bounds(selection.since, selection.until)
    if selection.lake is not None:
        if selection.pattern is not None:
            raise JobError("--topic-pattern is for topics: name those of a lake with --topics")
        version = known.get("version", selection.version)
        path, names = _whole_path(selection.lake), tuple(_names(selection.topics))
        return Lake(spark, path, version, bounds, selection.table_options, names)
    if not selection.topics and selection.pattern is None:
        raise JobError("say what to replay: --lake DIR, or --topics A,B")
    found = known.get("topics") or found_topics(
        selection.bootstrap, selection.topics, selection.pattern
    )
    return Topics(spark, selection.bootstrap, tuple(found), bounds, selection.source_options)


def _refuse_other_bounds(options: Mapping[str, object]) -> None:
    for name in options:
        if name.lower().startswith(("starting", "ending", "subscribe", "assign")):
            raise JobError(
                f"--option {name}: a replay is told what to send by --topics, --from and --until"
            )


def chosen(source: "Source", extent: "Extent", where: str | None) -> "DataFrame":
    """The messages between these offsets for which the condition holds."""
    frame = source.rows(extent)
    return frame.where(where) if where else frame


def _names(topics: str | Sequence[str]) -> list[str]:
    named = topics.split(",") if isinstance(topics, str) else topics
    return [name.strip() for name in named if name.strip()]


def _whole_path(path: str | Path) -> str:
    from waystation.pipelines.archive_start import whole_path

    return whole_path(str(path))


# --- counting ---------------------------------------------------------------------------------


class Counted(NamedTuple):
    """What would be sent of one partition."""

    topic: str
    partition: int
    messages: int
    first_offset: int
    last_offset: int
    first_time: str
    last_time: str


def count(spark: "SparkSession", selection: Selection) -> list[Counted]:
    """What a replay would send, without sending it."""
    from pyspark.sql import functions as f

    source = source_of(spark, selection)
    extent = source.extent()
    if not extent.first:
        return []
    found = chosen(source, extent, selection.where).groupBy("topic", "partition")
    counts = found.agg(
        f.count(f.lit(1)).alias("messages"),
        f.min("offset").alias("first"),
        f.max("offset").alias("last"),
        f.unix_millis(f.min("timestamp")).alias("oldest_ms"),
        f.unix_millis(f.max("timestamp")).alias("newest_ms"),
    )
    return sorted(map(_counted, counts.collect()))


def _counted(row: Any) -> Counted:
    return Counted(
        topic=row["topic"],
        partition=row["partition"],
        messages=row["messages"],
        first_offset=row["first"],
        last_offset=row["last"],
        first_time=_shown_time(row["oldest_ms"]),
        last_time=_shown_time(row["newest_ms"]),
    )


def _shown_time(time_ms: int | None) -> str:
    if time_ms is None:
        return ""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds")
