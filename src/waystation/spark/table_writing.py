"""How a frame becomes rows of a table: tasks write files, the driver commits them.

A micro-batch is one commit, named by its sink and its number.  After any death Spark runs the
batch again with the same number and the same rows, and the table takes it once:

1. before the commit, the files of the attempt that died belong to nobody, and the commit of
   the next attempt removes them;
2. after it, the next attempt finds the batch committed, and removes its own files instead.

With a quarantine, that table is committed first: a row that does not fit is never missing from
both.  Nothing here decides what is committed; ``table_kinds.py`` says who does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from waystation.spark.errors import BadOptionError, speaking_plainly
from waystation.spark.table_cleaning import remove_leftovers
from waystation.spark.table_errors import TableError
from waystation.spark.table_files import FileSet, Layout, WrittenFile
from waystation.spark.table_kinds import BatchKey, find_kind, kind_called
from waystation.spark.table_location import Location
from waystation.spark.table_options import WriteSettings
from waystation.spark.table_ranges import Ranges, merge
from waystation.spark.table_schema import (
    RAW,
    REASON,
    check_fit,
    check_partition_columns,
    quarantined,
)

__all__ = ["BatchTableWriter", "StreamTableWriter", "Target", "targets"]

# How files begin that belong to no batch.
_AD_HOC = "ws-append"

_BATCH_PROPERTY = "streaming.sql.batchId"
_QUERY_PROPERTY = "sql.streaming.queryId"


class Target(NamedTuple):
    """One of the tables that a frame goes to."""

    location: Location
    kind: str
    layout: Layout


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task left in each target, in the order of the targets."""

    key: BatchKey | None
    files: tuple[tuple[WrittenFile, ...], ...]
    ranges: tuple[Ranges, ...]


def targets(settings: WriteSettings, schema: StructType) -> tuple[Target, ...]:
    """The quarantine, if there is one, and the table; each exists and takes the frame after this.

    Everything that can be wrong with them is found here, before a row is written.
    """
    if settings.quarantine is None:
        return (_target(settings, settings.location, schema),)
    fitting, others = quarantined(schema)
    return (
        _target(settings, settings.quarantine, others),
        _target(settings, settings.location, fitting),
    )


def _target(settings: WriteSettings, location: Location, schema: StructType) -> Target:
    check_partition_columns(settings.partition_by, schema)
    there = find_kind(location)
    if there not in (None, settings.kind):
        raise TableError(
            location.path,
            f"it is a {there} table, and option format asks for {settings.kind}. Set format to "
            f"{there}, or choose another path",
        )
    kind = kind_called(settings.kind)
    try:
        if there is None or not kind.is_here(location):
            _check_room(location)
            kind.create(location, schema, settings.partition_by)
        table = kind.open_table(location)
        table.check_appendable()
        location.check_writable()
    except OSError as error:
        raise TableError(
            location.path, f"cannot be written: {error}. Check the path and who may write there"
        ) from None
    check_fit(location.path, schema, table.schema)
    if table.partition_by != settings.partition_by:
        raise TableError(
            location.path,
            f"it is partitioned by {_listed(table.partition_by)}, and option partitionBy asks "
            f"for {_listed(settings.partition_by)}. Ask for the same, or choose another path",
        )
    layout = Layout(
        schema=schema,
        partition_by=settings.partition_by,
        keeps_partition_columns=kind.KEEPS_PARTITION_COLUMNS,
        folder=kind.FOLDER,
        hidden=kind.HIDDEN,
        compression=settings.compression,
        file_bytes=settings.file_bytes,
    )
    return Target(location, settings.kind, layout)


def _check_room(location: Location) -> None:
    """Refuse a folder that is used for something else.

    What readers pass over does no harm, such as a checkpoint in ``_checkpoint``, or the logs of
    a table whose making was interrupted.
    """
    if not location.local or not location.folder.exists():
        return
    passed_over = ("_", ".", "metadata")
    if not location.folder.is_dir() or any(
        path.is_file() and not str(path.relative_to(location.folder)).startswith(passed_over)
        for path in location.folder.rglob("*")
    ):
        raise TableError(
            location.path, "there is something here that is no table. Choose an empty folder"
        )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"


class _Writing:
    """What streams and single writes share."""

    def __init__(self, settings: WriteSettings, schema: StructType) -> None:
        self._settings = settings
        with speaking_plainly():
            self._targets = targets(settings, schema)

    def _write(self, batches: Iterator[pa.RecordBatch], key: BatchKey | None) -> Written:
        """Runs in a task: rows to files, which stay unknown to the table."""
        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        stem = f"{_AD_HOC if key is None else key.stem}-{task:05d}"
        sets = [FileSet(target.location, target.layout, stem) for target in self._targets]
        try:
            for batch in batches:
                for files, part in zip(sets, self._parted(batch), strict=True):
                    files.add(part)
            for files in sets:
                files.finish()
        except BaseException as error:
            for files in sets:
                files.discard()
            if isinstance(error, OSError):
                raise self._unwritable(error) from error
            raise
        return Written(
            key,
            tuple(tuple(files.finished) for files in sets),
            tuple(files.ranges for files in sets),
        )

    def _unwritable(self, error: OSError) -> TableError:
        """The first table stands for both: they are written together or not at all."""
        return TableError(
            self._targets[0].location.path,
            f"cannot be written: {error}. Nothing of this batch is shown; free some space, or "
            "check who may write there, and start again: it goes on where it was",
        )

    def _parted(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The rows of each target."""
        if len(self._targets) == 1:
            return [batch]
        fits = pc.is_null(batch.column(REASON))
        others = batch.filter(pc.invert(fits))
        names = [name for name in batch.schema.names if name not in (REASON, RAW, "value")]
        refused = pa.RecordBatch.from_arrays(
            [
                *(others.column(name) for name in names),
                others.column(RAW),
                others.column(REASON),
            ],
            names=[*names, "value", "reason"],
        )
        return [refused, batch.filter(fits).drop_columns([REASON, RAW])]

    def _commit(self, written: Sequence[Written]) -> None:
        """Runs on the driver: one commit per target that got rows."""
        for at, target in enumerate(self._targets):
            files = [file for message in written for file in message.files[at]]
            if files:
                ranges = merge(message.ranges[at] for message in written)
                commit(target, files, written[0].key, ranges)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what tasks wrote, unless it may be committed.

        Spark aborts after a failed commit too, and a commit that failed may have been made: its
        process died after it, or between two tables, or is not even dead.  Only while a task's
        message is missing has nobody tried; otherwise the next attempt knows, or vacuum.
        """
        if None not in messages:
            return
        written = _those_written(messages)
        for at, target in enumerate(self._targets):
            files = [file.path for message in written for file in message.files[at]]
            target.location.discard(files)


def commit(
    target: Target, files: Sequence[WrittenFile], key: BatchKey | None, ranges: Ranges
) -> None:
    """Show the files, unless this batch is there already; leave no others of this batch."""
    table = kind_called(target.kind).open_table(target.location)
    if key is None:
        table.append(files, None, ranges)
        return
    try:
        decided = table.is_decided(key)
    except TableError:
        target.location.discard([file.path for file in files])
        raise
    if not decided and table.append(files, key, ranges):
        committed = {file.path for file in files}
    else:
        table = kind_called(target.kind).open_table(target.location)
        committed = set(table.files_of(key) or ())
        target.location.discard([file.path for file in files])
        if not committed:
            return
    remove_leftovers(target.location, key.stem, files, committed)


class StreamTableWriter(_Writing, DataSourceStreamArrowWriter):
    """The sink of a streaming query."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs in a task."""
        with speaking_plainly():
            return self._write(iterator, self._key())

    def _key(self) -> BatchKey:
        context = TaskContext.get()
        assert context is not None, "a task writes, the driver does not"
        batch = context.getLocalProperty(_BATCH_PROPERTY)
        query = context.getLocalProperty(_QUERY_PROPERTY)
        if batch is None or query is None:
            raise BadOptionError(
                "Spark does not tell its tasks which batch they write: use pyspark 4.1 or later"
            )
        return BatchKey(self._settings.sink or query, query, int(batch))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Runs on the driver when every task has written."""
        written = _those_written(messages)
        assert all(message.key and message.key.batch == batchId for message in written), (
            f"tasks wrote {[message.key for message in written]}, the driver commits {batchId}"
        )
        with speaking_plainly():
            self._commit(written)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Runs on the driver when a task failed for good."""
        self._abort(messages)


class BatchTableWriter(_Writing, DataSourceArrowWriter):
    """One append, as ``df.write.mode("append")`` makes it."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs in a task."""
        with speaking_plainly():
            return self._write(iterator, None)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Runs on the driver when every task has written."""
        with speaking_plainly():
            self._commit(_those_written(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Runs on the driver when a task failed for good."""
        self._abort(messages)


def _those_written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]
