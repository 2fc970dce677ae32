"""Where a replay's messages come from: topics, or the table of a lake.

Both answer two questions: which offsets hold what is within the bounds, and what rows there are
between some of them.
The rows of one partition come in one task, in the order of their offsets; that order is all that
a replay has to keep.

What they answer from is fixed by ``pin``: the topics by name, the table by its version.
"""

import json
from collections.abc import Mapping
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pyspark.sql import functions as f

from waystation.model.ids import TopicPartition
from waystation.pipelines.failures import JobError
from waystation.pipelines.job import FORMAT, as_option
from waystation.pipelines.replay_plan import Extent
from waystation.pipelines.replay_range import Bounds, clipped, offsets_of_each
from waystation.pipelines.topic_log import extents
from waystation.spark.offsets import to_json
from waystation.spark.options import parse_options
from waystation.spark.source import SpanPartition, TopicReader
from waystation.spark.table_options import read_settings
from waystation.spark.table_reading import open_snapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from waystation.spark.planning import Position
    from waystation.spark.table_kinds import Piece

__all__ = ["Lake", "Source", "Topics"]

_TABLE = "waystation.table"
_PLACE = "topic string, partition int, offset bigint, timestamp timestamp, _file string"
_NEEDED = ("key", "value", "topic", "partition", "offset", "timestamp")
# How much later than its neighbours a message may have come to be found by its time in a log.
_LATE_MS = 3_600_000
_DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1).toordinal()


class Source(Protocol):
    """What is replayed."""

    def pin(self) -> dict[str, Any]:
        """What fixes it, to be written down."""

    def extent(self) -> Extent:
        """The offsets that hold everything within the bounds, and perhaps more."""

    def rows(self, extent: Extent) -> "DataFrame":
        """The messages between these offsets that are within the bounds of time."""


# --- topics -----------------------------------------------------------------------------------


class Topics:
    """Topics of a cluster, read as they are committed."""

    def __init__(
        self,
        spark: "SparkSession",
        bootstrap: str,
        names: tuple[str, ...],
        bounds: Bounds,
        options: Mapping[str, object],
    ) -> None:
        self._spark, self._names, self._bounds = spark, names, bounds
        self._told = {"bootstrap.servers": bootstrap, **options}

    def pin(self) -> dict[str, Any]:
        return {"topics": list(self._names)}

    def extent(self) -> Extent:
        told = {"subscribe": ",".join(self._names), **self._edges()}
        options = {name.lower(): as_option(one) for name, one in {**self._told, **told}.items()}
        reader = TopicReader(parse_options(options, stream=False), ("offset",))
        spans = [part.span for part in reader.partitions() if isinstance(part, SpanPartition)]
        places = {TopicPartition(span.topic, span.partition): span for span in spans}
        return Extent(
            {where: span.start for where, span in places.items()},
            {where: span.end for where, span in places.items()},
        )

    def rows(self, extent: Extent) -> "DataFrame":
        partitions = to_json(extent.first)
        told = {
            **self._told,
            "assign": json.dumps({name: [*map(int, some)] for name, some in partitions.items()}),
            "startingOffsets": json.dumps(partitions),
            "endingOffsets": json.dumps(to_json(extent.last)),
            "includeHeaders": "true",
        }
        options = {name: as_option(one) for name, one in told.items()}
        frame = self._spark.read.format(FORMAT).options(**options).load()
        return _within(frame, self._bounds)

    def _edges(self) -> dict[str, object]:
        """Where to begin and to end, as the source's options."""
        edges: dict[str, object] = {}
        bounds = self._bounds
        if bounds.since_ms is not None:
            edges["startingTimestamp"] = bounds.since_ms
            edges["startingOffsetsByTimestampStrategy"] = "latest"
        elif bounds.since is not None:
            edges["startingOffsets"] = json.dumps(to_json(self._offsets(bounds.since)))
        if bounds.until_ms is not None:
            edges["endingTimestamp"] = bounds.until_ms + _LATE_MS
        elif bounds.until is not None:
            edges["endingOffsets"] = json.dumps(to_json(self._offsets(bounds.until)))
        return edges

    def _offsets(self, position: "Position") -> dict[TopicPartition, int]:
        """What the user wants of every partition, as far as it has it."""
        held = extents(str(self._told["bootstrap.servers"]), self._names)
        wanted = offsets_of_each(position, held)
        return {where: min(max(wanted[where], has.start), has.end) for where, has in held.items()}


# --- a lake -----------------------------------------------------------------------------------


class _Stretch(NamedTuple):
    """What one file has of one partition."""

    file: str
    where: TopicPartition
    first: int
    last: int


class Lake:
    """One version of a table that ``archive`` has filled, or that has its columns."""

    def __init__(
        self,
        spark: "SparkSession",
        path: str,
        version: int | None,
        bounds: Bounds,
        options: Mapping[str, object],
        topics: tuple[str, ...] = (),
    ) -> None:
        self._spark, self._path = spark, path
        self._bounds, self._topics = bounds, topics
        self._options = {name: str(value) for name, value in options.items()}
        asked = {"path": path, **self._options}
        if version is not None:
            asked["version"] = str(version)
        _, self._table = open_snapshot(read_settings(asked))
        _check_columns(path, self._table.schema.fieldNames())

    def pin(self) -> dict[str, Any]:
        return {"version": self._table.version}

    def extent(self) -> Extent:
        first: dict[TopicPartition, int] = {}
        last: dict[TopicPartition, int] = {}
        for one in self._stretches:
            first[one.where] = min(one.first, first.get(one.where, one.first))
            last[one.where] = max(one.last, last.get(one.where, one.last))
        return clipped(Extent(first, last), self._bounds)

    def rows(self, extent: Extent) -> "DataFrame":
        files = sorted({one.file for one in self._stretches if _touches(one, extent)})
        frame = self._reader(files).load(self._path)
        wanted = _within(frame.where(_between(extent)), self._bounds)
        # With a number of partitions, which Spark takes as said: else it might split them.
        most = int(self._spark.conf.get("spark.sql.shuffle.partitions") or 8)
        tasks = max(min(len(extent.first), most), 1)
        together = wanted.repartition(tasks, "topic", "partition")
        return together.sortWithinPartitions("topic", "partition", "offset")

    @cached_property
    def _stretches(self) -> list[_Stretch]:
        """What lies in which file, found by reading places only."""
        frame = self._reader(self._candidates(), includePosition="true").schema(_PLACE)
        places = _within(frame.load(self._path), self._bounds)
        if self._topics:
            places = places.where(f.col("topic").isin(*self._topics))
        found = places.groupBy("_file", "topic", "partition").agg(
            f.min("offset").alias("first"),
            f.max("offset").alias("last"),
            f.count_if(f.col("offset").isNull()).alias("nowhere"),
        )
        return [self._stretch(row) for row in found.collect()]

    def _stretch(self, row: Any) -> _Stretch:
        if row["topic"] is None or row["partition"] is None or row["nowhere"]:
            raise JobError(
                f"--lake {self._path} has rows without topic, partition or offset, whose order "
                "nobody knows. Remedy: replay a table that `waystation pipeline archive` has filled"
            )
        where = TopicPartition(row["topic"], row["partition"])
        return _Stretch(row["_file"], where, row["first"], row["last"] + 1)

    def _candidates(self) -> list[str]:
        """The files that may hold what was asked for, as their folders tell."""
        return [piece.path for piece in self._table.pieces() if self._may_hold(piece)]

    def _may_hold(self, piece: "Piece") -> bool:
        told = dict(piece.partition)
        if self._topics and told.get("topic", self._topics[0]) not in self._topics:
            return False
        day = told.get("date")
        if not isinstance(day, date):
            return True
        # The archive's day is that of the message's time in UTC.
        since_ms, until_ms = self._bounds.since_ms, self._bounds.until_ms
        number = day.toordinal() - _EPOCH
        after = since_ms is None or number >= since_ms // _DAY_MS
        return after and (until_ms is None or number <= until_ms // _DAY_MS)

    def _reader(self, files: list[str], **options: str) -> Any:
        told = {**self._options, **options, "version": str(self._table.version)}
        return self._spark.read.format(_TABLE).options(**told, files=json.dumps(files))


def _check_columns(path: str, there: list[str]) -> None:
    if missing := [name for name in _NEEDED if name not in there]:
        raise JobError(
            f"--lake {path} has no column {', '.join(missing)}: a replay needs "
            f"{', '.join(_NEEDED)}, which `waystation pipeline archive` writes"
        )


def _touches(one: _Stretch, extent: Extent) -> bool:
    if one.where not in extent.first:
        return False
    return one.first < extent.last[one.where] and one.last > extent.first[one.where]


def _between(extent: Extent) -> "Column":
    """Whether a row's place is in the extent."""
    offset = f.col("offset")
    # One flat list of cases: thousands of partitions must not nest.
    chosen = f.when(f.lit(False), False)
    for where, first in extent.first.items():
        here = (f.col("topic") == where.topic) & (f.col("partition") == where.partition)
        chosen = chosen.when(here, (offset >= first) & (offset < extent.last[where]))
    return chosen.otherwise(False)


# --- both -------------------------------------------------------------------------------------


def _within(frame: "DataFrame", bounds: Bounds) -> "DataFrame":
    """The rows whose own time is within the bounds."""
    time_ms = f.unix_millis("timestamp")
    if bounds.since_ms is not None:
        frame = frame.where(time_ms >= bounds.since_ms)
    if bounds.until_ms is not None:
        frame = frame.where(time_ms < bounds.until_ms)
    return frame
