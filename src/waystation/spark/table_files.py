"""The Parquet files that one task writes.

Rows go to one file per combination of partition values, in the order in which they come.  Where
they say which offset they are, the offsets of each partition of a topic ascend inside a file: a
stretch that comes out of order is sorted, and goes to a new file if it begins too early for the
open one.

Memory does not grow with the rows: at most ``BUFFERED_BYTES`` wait to be written, at most
``OPEN_FILES`` files are open, and a file that reached its size is closed.
"""

import datetime as dt
import decimal
import json
import posixpath
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from waystation.spark.table_location import Location
from waystation.spark.table_ranges import OffsetRange, Ranges, merge
from waystation.spark.table_schema import PLACE, arrow_schema, conform, has_places

__all__ = ["FileSet", "Layout", "WrittenFile", "partition_text"]

BUFFERED_BYTES: Final = 64 << 20
ROW_GROUP_BYTES: Final = 16 << 20
OPEN_FILES: Final = 64

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_PLAIN: Final = " !$&()+,-.;@_~"

_Values = tuple[Any, ...]


class Layout(NamedTuple):
    """How the files of one table look."""

    schema: StructType
    partition_by: tuple[str, ...]
    # Delta and Hive keep the values of partition columns in the log or the path, Iceberg in files.
    keeps_partition_columns: bool
    folder: str
    # Whether names begin with an underscore, so that plain readers pass over the files.
    hidden: bool
    compression: str
    file_bytes: int


class WrittenFile(NamedTuple):
    """A finished file that nobody has committed yet; the path counts from the table's root."""

    path: str
    size_bytes: int
    rows: int
    partition: tuple[tuple[str, str | None], ...]
    stats: str


class FileSet:
    """Takes batches, leaves files behind."""

    def __init__(self, location: Location, layout: Layout, stem: str) -> None:
        self._location, self._layout = location, layout
        self._system = location.file_system()
        self._name = f"{'_' if layout.hidden else ''}{stem}-{uuid.uuid4().hex[:12]}"
        self._schema = arrow_schema(layout.schema)
        self._in_order = has_places(layout.schema)
        self._open: OrderedDict[_Values, _Open] = OrderedDict()
        self._buffered_bytes = 0
        self._opened: list[str] = []
        self.finished: list[WrittenFile] = []
        self.ranges: Ranges = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows; some wait in memory until there are enough of them."""
        if not batch.num_rows:
            return
        for values, part in _by_values(conform(batch, self._schema), self._layout.partition_by):
            writing = self._open.get(values)
            if writing is None:
                writing = self._open[values] = _Open()
            self._open.move_to_end(values)
            writing.waiting.append(part)
            writing.waiting_bytes += part.nbytes
            self._buffered_bytes += part.nbytes
            if writing.waiting_bytes >= ROW_GROUP_BYTES:
                self._flush(values, writing)
        while self._buffered_bytes > BUFFERED_BYTES:
            values, writing = max(self._open.items(), key=lambda item: item[1].waiting_bytes)
            self._flush(values, writing)
        while len(self._open) > OPEN_FILES:
            self._close(next(iter(self._open)))

    def finish(self) -> list[WrittenFile]:
        """Write what waits, and make all files safe."""
        while self._open:
            self._close(next(iter(self._open)))
        self._location.settle(*(file.path for file in self.finished))
        return self.finished

    def discard(self) -> None:
        """The task failed: leave nothing behind."""
        for writing in self._open.values():
            if writing.writer is not None:
                writing.writer.close()
                writing.sink.close()
        self._location.discard(self._opened)

    def _flush(self, values: _Values, writing: "_Open") -> None:
        """Write the waiting rows as one row group."""
        if not writing.waiting:
            return
        rows = pa.Table.from_batches(writing.waiting)
        self._buffered_bytes -= writing.waiting_bytes
        writing.waiting, writing.waiting_bytes = [], 0
        if self._in_order:
            rows, ranges = _in_order(rows)
            self.ranges = merge((self.ranges, ranges))
            if any(writing.last.get(at, -1) > brought.first for at, brought in ranges.items()):
                self._end_file(values, writing)
            writing.last.update({at: brought.last for at, brought in ranges.items()})
        if not self._layout.keeps_partition_columns and self._layout.partition_by:
            rows = rows.drop_columns(list(self._layout.partition_by))
        if writing.writer is None:
            self._begin_file(values, writing, rows.schema)
        writing.writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        if writing.sink.tell() >= self._layout.file_bytes:
            self._end_file(values, writing)

    def _begin_file(self, values: _Values, writing: "_Open", schema: pa.Schema) -> None:
        parts = [self._layout.folder] if self._layout.folder else []
        for name, value in zip(self._layout.partition_by, values, strict=True):
            text = partition_text(value)
            parts.append(f"{name}={NO_VALUE if text is None else quote(text, safe=_PLAIN)}")
        folder = "/".join(parts)
        if folder and self._location.local:
            self._system.create_dir(folder, recursive=True)
        writing.path = posixpath.join(folder, f"{self._name}-{len(self._opened):03d}.parquet")
        self._opened.append(writing.path)
        writing.sink = self._system.open_output_stream(writing.path)
        plain = [field.name for field in schema if not pa.types.is_nested(field.type)]
        texts = [name for name in plain if not pa.types.is_binary(schema.field(name).type)]
        writing.writer = pq.ParquetWriter(
            writing.sink,
            schema,
            compression=self._layout.compression,
            # Values of messages hardly ever repeat, and bounds of bytes help nobody.
            use_dictionary=texts,
            write_statistics=texts,
            store_schema=False,
        )

    def _end_file(self, values: _Values, writing: "_Open") -> None:
        if writing.writer is None:
            return
        writing.writer.close()
        size_bytes = writing.sink.tell()
        writing.sink.close()
        about = writing.writer.writer.metadata
        names = self._layout.partition_by
        self.finished.append(
            WrittenFile(
                writing.path,
                size_bytes,
                about.num_rows,
                tuple(zip(names, map(partition_text, values), strict=True)),
                _stats(about),
            )
        )
        writing.writer = writing.sink = None
        writing.last = {}

    def _close(self, values: _Values) -> None:
        writing = self._open[values]
        self._flush(values, writing)
        self._end_file(values, writing)
        del self._open[values]


class _Open:
    """One combination of partition values: rows that wait, and the file they go to."""

    __slots__ = ("last", "path", "sink", "waiting", "waiting_bytes", "writer")

    def __init__(self) -> None:
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self.last: dict[tuple[str, int], int] = {}
        self.path = ""
        self.sink: Any = None
        self.writer: Any = None


def partition_text(value: Any) -> str | None:
    """A partition value as Delta and Hive write it."""
    match value:
        case None | "":
            # Both formats read an empty text back as null.
            return None
        case bool():
            return str(value).lower()
        case dt.datetime():
            return value.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        case dt.date():
            return value.isoformat()
        case decimal.Decimal():
            return format(value, "f")
        case _:
            return str(value)


def _by_values(
    batch: pa.RecordBatch, names: tuple[str, ...]
) -> Iterator[tuple[_Values, pa.RecordBatch]]:
    """The batch by partition values, rows in their order."""
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in names:
        encoded = batch.column(name).dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
    present, first = np.unique(codes, return_index=True)
    for code, at in sorted(zip(present, first, strict=True), key=lambda pair: int(pair[1])):
        values = tuple(batch.column(name)[int(at)].as_py() for name in names)
        yield values, batch if len(present) == 1 else batch.filter(pa.array(codes == code))


def _in_order(rows: pa.Table) -> tuple[pa.Table, Ranges]:
    """The rows with ascending offsets per partition, and the ranges they are."""
    ranges = _ranges(rows)
    if len(ranges) == 1 and _ascends(rows.column("offset")):
        return rows, ranges
    by = [(name, "ascending") for name in PLACE]
    return rows.take(pc.sort_indices(rows, sort_keys=by)), ranges


def _ascends(offsets: pa.ChunkedArray) -> bool:
    steps = offsets.to_numpy()
    return not offsets.null_count and bool(np.all(steps[1:] >= steps[:-1]))


def _ranges(rows: pa.Table) -> dict[tuple[str, int], OffsetRange]:
    brought = (
        rows.select(PLACE)
        .group_by(["topic", "partition"])
        .aggregate([("offset", "min"), ("offset", "max"), ("offset", "count")])
        .to_pylist()
    )
    return {
        (row["topic"], row["partition"]): OffsetRange(
            row["offset_min"], row["offset_max"], row["offset_count"]
        )
        for row in brought
        if None not in row.values()
    }


def _stats(about: pq.FileMetaData) -> str:
    """What Delta's log says about a file, so that readers can pass over it."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    columns = set(about.schema.to_arrow_schema().names)
    for column in range(about.num_columns):
        chunks = [about.row_group(group).column(column) for group in range(about.num_row_groups)]
        name = chunks[0].path_in_schema
        if name not in columns or not all(chunk.is_stats_set for chunk in chunks):
            continue
        known = [chunk.statistics for chunk in chunks]
        if all(found.has_null_count for found in known):
            nulls[name] = sum(found.null_count for found in known)
        full = [found for found in known if found.num_values]
        if full and all(found.has_min_max and _bounds(found.min) for found in full):
            least[name] = _stat(min(found.min for found in full))
            most[name] = _stat(max(found.max for found in full))
    return json.dumps(
        {"numRecords": about.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    )


def _bounds(value: Any) -> bool:
    """Numbers and dates; bounds of texts may be cut, and then are none."""
    return isinstance(value, int | dt.date) and not isinstance(value, bool)


def _stat(value: Any) -> Any:
    match value:
        case dt.datetime():
            return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        case dt.date():
            return value.isoformat()
        case _:
            return value
