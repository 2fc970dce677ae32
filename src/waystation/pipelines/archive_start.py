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
from waystation.pipelines.job import subscription
from waystation.spark.brokers import Brokers
from waystation.spark.options import parse_options
from waystation.spark.table_kinds import find_kind
from waystation.spark.table_location import Location

__all__ = ["Start", "archived_until", "begin", "whole_path"]

_PIN = "archive.json"
_STORAGE = "storage."
_EARLIEST = -2

Options = Mapping[str, object]


class Start(NamedTuple):
    """What a query is started with."""

    sink_id: str
    starting_offsets: str


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
        pinned = _pin(spark, checkpoint, lake, read_from, options, table_options)
    elif pinned["lake"] != lake:
        raise JobError(
            f"--checkpoint {checkpoint.folder} belongs to the lake {pinned['lake']}, not to "
            f"{lake}. Remedy: give every lake a checkpoint of its own"
        )
    elif not checkpoint.has_batches():
        pass  # it died early: begin again, at the same place
    elif _is_table(lake, table_options):
        # Spark knows where to go on; partitions that are new by now begin at their beginning.
        return Start(pinned["sinkId"], "earliest")
    else:
        raise JobError(
            f"--checkpoint {checkpoint.folder} has archived to {lake}, where there is no table any "
            "more. Remedy: bring it back, or archive anew with another --checkpoint"
        )
    return Start(pinned["sinkId"], pinned["startingOffsets"])


def _pin(
    spark: SparkSession,
    checkpoint: Checkpoint,
    lake: str,
    read_from: Mapping[str, Any],
    options: Options,
    table_options: Options,
) -> dict[str, str]:
    if checkpoint.is_used():
        raise JobError(
            f"--checkpoint {checkpoint.folder} holds the progress of another job. "
            "Remedy: give this one a folder of its own"
        )
    starting = str(options.get("startingOffsets", "earliest"))
    if _is_table(lake, table_options):
        archived = archived_until(spark, lake, table_options)
        starting = _starting_offsets(read_from, options, archived)
    pinned = {
        "lake": lake,
        "sinkId": f"archive-{uuid.uuid4().hex}",
        "startingOffsets": starting,
    }
    checkpoint.write(_PIN, pinned)
    return pinned


def whole_path(path: str) -> str:
    """The same for every way to write a folder of this machine."""
    return Location.of(path.rstrip("/") or "/").path


# --- where the lake ends ----------------------------------------------------------------------


def archived_until(
    spark: SparkSession, lake: str, table_options: Options
) -> dict[tuple[str, int], int]:
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
    return {(row["topic"], row["partition"]): row["last"] + 1 for row in ends.collect()}


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


def _starting_offsets(
    read_from: Mapping[str, Any], options: Options, archived: Mapping[tuple[str, int], int]
) -> str:
    """Each partition that there is begins after the lake's end, or at its own beginning."""
    told = {
        "bootstrap.servers": read_from["bootstrap"],
        **subscription(read_from["topics"]),
        **{name: str(value) for name, value in options.items()},
    }
    with Brokers(parse_options({k.lower(): v for k, v in told.items()}, stream=True)) as brokers:
        found = brokers.topics()
    starts = {
        name: {
            str(one.partition): archived.get((name, one.partition), _EARLIEST)
            for one in topic.partitions
        }
        for name, topic in found.items()
    }
    return json.dumps(starts)
