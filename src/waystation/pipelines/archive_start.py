"""Where an archive begins, and under which name its table knows it.

Decided once, when the checkpoint is fresh, and pinned beside it before anything is written: a
batch that is repeated after a crash must have the same name and the same first offset.  A lake
that holds records already is gone on with, whoever wrote them.
"""

import json
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from waystation.pipelines.checkpoint import Checkpoint
from waystation.pipelines.failures import JobError
from waystation.pipelines.job import as_option, subscription
from waystation.spark.brokers import Brokers
from waystation.spark.columns import COLUMNS
from waystation.spark.options import parse_options
from waystation.spark.source import TopicStreamReader
from waystation.spark.table_kinds import find_kind
from waystation.spark.table_location import Location

__all__ = ["Start", "archived_until", "begin", "whole_path"]

_PIN = "archive.json"
_STORAGE = "storage."
_EARLIEST = -2

Options = Mapping[str, object]
Positions = dict[str, dict[str, int]]
"""The first offset to read by topic and partition, as Spark writes offsets."""


class Start(NamedTuple):
    """What a query is started with; ``options`` are the source's."""

    sink_id: str
    options: dict[str, Any]


def begin(
    spark: SparkSession,
    checkpoint: Checkpoint,
    lake: str,
    read_from: Mapping[str, Any],
    options: Options,
    table_options: Options,
) -> Start:
    """What was pinned, or what is pinned now; an error if checkpoint and lake are not one."""
    pinned = checkpoint.read(_PIN)
    if pinned is None:
        _refuse_used(checkpoint)
        positions: Positions = {}
        if _is_table(lake, table_options):
            positions = archived_until(spark, lake, table_options)
        pinned = {
            "lake": lake,
            "sinkId": f"archive-{uuid.uuid4().hex}",
            "startingOffsets": positions or _asked_for(read_from, options),
        }
        checkpoint.write(_PIN, pinned)
    _refuse_strangers(checkpoint, pinned["lake"], lake, table_options)
    # Once there are batches, Spark knows where to go on.
    positions = {} if checkpoint.has_batches() else pinned["startingOffsets"]
    others = _without_start(options)
    starting = _starting_offsets(read_from, others, positions)
    return Start(pinned["sinkId"], {**others, "startingOffsets": starting})


def _refuse_used(checkpoint: Checkpoint) -> None:
    if checkpoint.is_used():
        raise JobError(
            f"--checkpoint {checkpoint.folder} holds the progress of another job. "
            "Remedy: give this one a folder of its own"
        )


def _refuse_strangers(
    checkpoint: Checkpoint, pinned_lake: str, lake: str, table_options: Options
) -> None:
    if pinned_lake != lake:
        raise JobError(
            f"--checkpoint {checkpoint.folder} belongs to the lake {pinned_lake}, not to {lake}. "
            "Remedy: give every lake a checkpoint of its own"
        )
    if checkpoint.has_batches() and not _is_table(lake, table_options):
        raise JobError(
            f"--checkpoint {checkpoint.folder} has archived to {lake}, where there is no table any "
            "more. Remedy: bring it back, or archive anew with another --checkpoint"
        )


def _asked_for(read_from: Mapping[str, Any], options: Options) -> Positions:
    """Where the user wants to begin, as numbers: ``latest`` must not move while we try to start.

    Nothing for the beginning, which may move without harm.
    """
    if _without_start(options) == dict(options):
        return {}
    reader = TopicStreamReader(_said(read_from, options), COLUMNS)
    try:
        return reader.initialOffset()
    finally:
        reader.stop()


def _starting_offsets(read_from: Mapping[str, Any], options: Options, positions: Positions) -> str:
    """The source's option: every partition that there is now, at its position or its beginning."""
    if not positions:
        return "earliest"
    asked = parse_options(_said(read_from, options), stream=True)
    with Brokers(asked) as brokers:
        found = brokers.topics()
    assigned = asked.topics.partitions
    starts = {
        name: {
            str(one.partition): positions.get(name, {}).get(str(one.partition), _EARLIEST)
            for one in topic.partitions
            if not assigned or (name, one.partition) in assigned
        }
        for name, topic in found.items()
    }
    return json.dumps(starts)


def _without_start(options: Options) -> dict[str, Any]:
    return {name: one for name, one in options.items() if not name.lower().startswith("starting")}


def _said(read_from: Mapping[str, Any], options: Options) -> dict[str, str]:
    """The source's options, as Spark would hand them over."""
    told = {
        "bootstrap.servers": read_from["bootstrap"],
        **subscription(read_from["topics"]),
        **options,
    }
    return {name.lower(): as_option(value) for name, value in told.items()}


def whole_path(path: str) -> str:
    """The same for every way to write a folder of this machine."""
    return Location.of(path.rstrip("/") or "/").path


# --- where the lake ends ----------------------------------------------------------------------


def archived_until(spark: SparkSession, lake: str, table_options: Options) -> Positions:
    """The first offset of each partition that is missing from a lake and its quarantine.

    Of the quarantine counts what follows the lake's last record without a gap: where a crash
    came between the two commits of a batch, the quarantine is ahead, and what lies between is
    read again.  Then a record may be set aside twice; none is left out.
    """
    archived = _offsets_of(spark, lake, table_options).groupBy("topic", "partition")
    ends = archived.agg({"offset": "max"}).withColumnRenamed("max(offset)", "last")
    quarantine = f"{lake}-quarantine"
    if _is_table(quarantine, table_options):
        ends = _with_quarantine(ends, _offsets_of(spark, quarantine, table_options))
    positions: Positions = {}
    for row in ends.collect():
        positions.setdefault(row["topic"], {})[str(row["partition"])] = row["last"] + 1
    return positions


def _with_quarantine(ends: DataFrame, set_aside: DataFrame) -> DataFrame:
    later = ends.join(set_aside.distinct(), ["topic", "partition"]).where("offset > last")
    place = "row_number() over (partition by topic, partition order by offset)"
    following = later.selectExpr("topic", "partition", "offset", f"last + {place} as expected")
    following_without_gap = following.where("offset = expected").groupBy("topic", "partition")
    known = following_without_gap.agg({"offset": "max"}).withColumnRenamed("max(offset)", "later")
    joined = ends.join(known, ["topic", "partition"], "left")
    # The greatest of a number and null is the number.
    return joined.selectExpr("topic", "partition", "greatest(last, later) as last")


def _offsets_of(spark: SparkSession, table: str, table_options: Options) -> DataFrame:
    reader = spark.read.format("waystation.table")
    for name, value in table_options.items():
        if name.lower().startswith(_STORAGE):
            reader = reader.option(name, str(value))
    return reader.schema("topic string, partition int, offset bigint").load(table)


def _is_table(path: str, table_options: Options) -> bool:
    storage = {
        name.lower().removeprefix(_STORAGE): str(value)
        for name, value in table_options.items()
        if name.lower().startswith(_STORAGE)
    }
    return find_kind(Location.of(path, tuple(sorted(storage.items())))) is not None
