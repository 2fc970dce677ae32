"""What a lake's table says of itself: what its commits recorded, and what its files hold.

Two checks need no log.  Rows of one partition stand in ascending order within a file, and commits
follow each other without stepping back.  And between the offsets that commits recorded there are
as many rows as they recorded: that finds what is missing where the log has forgotten it too.

Only files that the archive wrote are expected to be in order: whoever optimises a table joins
and sorts rows as it likes.
"""

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, NamedTuple

from waystation.model.ids import TopicPartition
from waystation.pipelines.failures import JobError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from waystation.spark.table_ranges import CommittedRanges

__all__ = [
    "Lake",
    "Recorded",
    "Seen",
    "opened",
    "opened_if_there",
    "reached",
    "recorded",
    "rows_of",
    "seen",
]

PLACE = ("topic", "partition", "offset")
PLACED = "topic string, partition int, offset bigint"

_SEEN = (
    "topic string, partition int, rows bigint, recorded bigint, last bigint, reordered bigint, "
    "first_reordered bigint, last_reordered bigint"
)
_NONE = -1


class Lake(NamedTuple):
    """One table at one version."""

    path: str
    kind: str
    version: int
    types: Mapping[str, str]
    """Its columns, by name."""
    commits: "Sequence[CommittedRanges]"


class Recorded(NamedTuple):
    """What the commits of a table say about one partition."""

    first: int
    last: int
    rows: int
    out_of_order: int
    """Commits that begin before an earlier one ends."""


class Seen(NamedTuple):
    """What the files of a table hold of one partition."""

    rows: int
    recorded_rows: int
    """Those between the first and the last offset that commits recorded."""
    last: int
    reordered: int
    """Rows after which a file still has a row that belongs before them, and the span of these."""
    first_reordered: int
    last_reordered: int


def opened(path: str) -> Lake:
    """The table at ``path`` as it is now."""
    from waystation.spark.table_kinds import existing_kind, kind_called
    from waystation.spark.table_location import Location

    location = Location.of(path)
    kind = existing_kind(location)
    # The commits first: what they recorded is then among the rows, and not the other way round.
    commits = kind_called(kind).open_table(location).history()
    table = kind_called(kind).open_table(location)
    types = {field.name: field.dataType.simpleString() for field in table.schema.fields}
    if missing := [name for name in PLACE if name not in types]:
        raise JobError(
            f"the table at {path} has no column {missing[0]}: only what `archive` wrote, with "
            "topic, partition and offset, can be compared with a log"
        )
    return Lake(path, kind, table.version, types, commits)


def opened_if_there(path: str) -> Lake | None:
    """The same, if there is a table."""
    from waystation.spark.table_kinds import find_kind
    from waystation.spark.table_location import Location

    return opened(path) if find_kind(Location.of(path)) else None


def rows_of(
    spark: "SparkSession", lake: Lake, columns: str, topics: Sequence[str], **options: str
) -> "DataFrame":
    """Some ``columns`` of the rows that belong to ``topics``."""
    from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

    reader = spark.read.format("waystation.table").schema(columns).options(**options)
    frame = reader.option("format", lake.kind).option("version", lake.version).load(lake.path)
    return frame.where(F.col("topic").isin(list(topics)))


def reached(table: Lake, quarantine: Lake | None) -> "list[CommittedRanges]":
    """The commits that the archive is past.

    A batch goes to the quarantine first, so what that has of a batch counts once the table has
    its part, or that of a later batch.
    """
    last: dict[str | None, int] = {}
    for commit in table.commits:
        last[commit.sink] = max(last.get(commit.sink, _NONE), _batch(commit))
    later = [] if quarantine is None else quarantine.commits
    return [*table.commits, *(one for one in later if _batch(one) <= last.get(one.sink, _NONE))]


def _batch(commit: "CommittedRanges") -> int:
    return 0 if commit.batch is None else commit.batch


def recorded(
    commits: "Iterable[CommittedRanges]", topics: Iterable[str]
) -> dict[TopicPartition, Recorded]:
    """The commits in their order, added up per partition."""
    wanted = set(topics)
    found: dict[TopicPartition, Recorded] = {}
    for commit in commits:
        for (topic, partition), (first, last, rows) in commit.ranges.items():
            if topic not in wanted:
                continue
            where = TopicPartition(topic, partition)
            known = found.get(where)
            if known is None:
                found[where] = Recorded(first, last, rows, 0)
            else:
                found[where] = Recorded(
                    min(known.first, first),
                    max(known.last, last),
                    known.rows + rows,
                    known.out_of_order + (first <= known.last),
                )
    return found


def seen(
    spark: "SparkSession",
    lakes: Sequence[Lake],
    topics: Sequence[str],
    told: Sequence[Mapping[TopicPartition, Recorded]],
) -> list[dict[TopicPartition, Seen]]:
    """Walk through all files of the tables in their order, by place only."""
    from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

    spans = [{where: (one.first, one.last) for where, one in known.items()} for known in told]
    walks = [
        rows_of(spark, lake, f"{PLACED}, _file string", topics, includePosition="true")
        .mapInArrow(partial(_walk, spans=spans[number]), _SEEN)
        .withColumn("lake", F.lit(number))
        for number, lake in enumerate(lakes)
    ]
    by_partition = reduce(lambda one, other: one.unionAll(other), walks).groupBy(
        "lake", "topic", "partition"
    )
    summed = by_partition.agg(
        F.sum("rows").alias("rows"),
        F.sum("recorded").alias("recorded"),
        F.max("last").alias("last"),
        F.sum("reordered").alias("reordered"),
        # Spark's least passes over what is null: files without a fault.
        F.min(F.nullif("first_reordered", F.lit(_NONE))).alias("first_reordered"),
        F.max("last_reordered").alias("last_reordered"),
    )
    found: list[dict[TopicPartition, Seen]] = [{} for _ in lakes]
    for row in summed.collect():
        found[row["lake"]][TopicPartition(row["topic"], row["partition"])] = Seen(
            row["rows"],
            row["recorded"],
            row["last"],
            row["reordered"],
            _NONE if row["first_reordered"] is None else row["first_reordered"],
            row["last_reordered"],
        )
    return found


def _is_of_the_archive(file: str) -> bool:
    """By the name that our sink gives its files, before a commit and after it."""
    return posixpath.basename(file).removeprefix("_").startswith("ws-")


class _Walk:
    """What one task has met of one partition in one file."""

    __slots__ = ("first_reordered", "last", "last_reordered", "recorded", "reordered", "rows")

    def __init__(self) -> None:
        self.rows = self.recorded = self.reordered = 0
        self.last = self.first_reordered = self.last_reordered = _NONE


def _walk(
    batches: Iterator["pa.RecordBatch"], spans: Mapping[TopicPartition, tuple[int, int]]
) -> Iterator["pa.RecordBatch"]:
    """Runs in a task; rows come in the order in which they lie in their files."""
    import pyarrow as pa

    walks: dict[tuple[str, str, int], _Walk] = {}
    for batch in batches:
        for file, topic, partition, offsets in _groups(batch):
            span = spans.get(TopicPartition(topic, partition), (0, _NONE))
            walk = walks.setdefault((file, topic, partition), _Walk())
            _step(walk, offsets, span, ordered=_is_of_the_archive(file))
    if walks:
        names = ("rows", "recorded", "last", "reordered", "first_reordered", "last_reordered")
        columns = [
            pa.array([topic for _, topic, _ in walks], pa.string()),
            pa.array([partition for _, _, partition in walks], pa.int32()),
            *(
                pa.array([getattr(one, name) for one in walks.values()], pa.int64())
                for name in names
            ),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=["topic", "partition", *names])


def _groups(batch: "pa.RecordBatch") -> Iterator[tuple[str, str, int, "pa.Array"]]:
    """The offsets of a batch by file, topic and partition, in their order."""
    import numpy as np

    codes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in ("_file", "topic", "partition"):
        encoded = batch[name].dictionary_encode()
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
    offsets = batch["offset"].to_numpy()
    for code in np.unique(codes):
        chosen = np.flatnonzero(codes == code)
        at = int(chosen[0])
        place = (batch[name][at].as_py() for name in ("_file", "topic", "partition"))
        yield (*place, offsets[chosen])


def _step(walk: _Walk, offsets: "pa.Array", span: tuple[int, int], *, ordered: bool) -> None:
    import numpy as np

    highest = np.maximum.accumulate(np.concatenate(([walk.last], offsets)))
    behind = offsets[offsets < highest[:-1]]
    walk.rows += len(offsets)
    walk.recorded += int(np.count_nonzero((offsets >= span[0]) & (offsets <= span[1])))
    walk.last = int(highest[-1])
    if ordered and len(behind):
        walk.reordered += len(behind)
        lowest = int(behind.min())
        walk.first_reordered = (
            lowest if walk.first_reordered == _NONE else min(walk.first_reordered, lowest)
        )
        walk.last_reordered = max(walk.last_reordered, int(behind.max()))
