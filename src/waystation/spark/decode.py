"""Fetched batches become Arrow batches of 1-4 MB, column by column.

What holds here:

1. a batch's checksum is verified before a row of it is shown;
2. rows come in the order of their offsets, only those of the span, only what is for the
   application's eyes (``client/visible.py``), and what a filter chooses if there is one;
3. every Arrow batch has exactly the columns asked for, and shares no memory with what was
   fetched; only the topic's name and number are shared among them.

The copying is done by the compiled ``records/columns.py``.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from waystation.client.raw import Fetched
from waystation.client.visible import Visibility
from waystation.filters.narrowing import Narrowing
from waystation.filters.selecting import Filter
from waystation.model.errors import CorruptBatchError
from waystation.records.batch import payload_of
from waystation.records.columns import ByteColumn, Filled, HeaderColumn, RecordColumns
from waystation.records.header import BatchHeader, TimestampType, batches, check
from waystation.spark.columns import ARROW, HEADERS
from waystation.spark.spans import Span

__all__ = ["SpanDecoder"]

TARGET_BYTES: Final = 2 << 20
"""Large enough that Spark's cost per batch does not count, small enough for the caches."""

TARGET_ROWS: Final = 1 << 16
_BATCH_LIMIT_BYTES: Final = 256 << 20

_HEADER = ARROW.field(HEADERS).type.value_type
_CREATE_TIME: Final = 0


class SpanDecoder:
    """Decodes what was fetched of one span; holds the rows of an Arrow batch that is not full."""

    def __init__(
        self,
        columns: tuple[str, ...],
        span: Span,
        where: str = "",
        *,
        target_bytes: int = TARGET_BYTES,
        target_rows: int = TARGET_ROWS,
    ) -> None:
        self._span = span
        self._narrowing = (
            Narrowing(Filter(where), span.partition, limit_bytes=_BATCH_LIMIT_BYTES)
            if where
            else None
        )
        self._schema = pa.schema([ARROW.field(name) for name in columns])
        self._columns = RecordColumns(columns, target_bytes=target_bytes, target_rows=target_rows)
        self._constants: dict[str, pa.Array] = {}

    def decode(self, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        """The Arrow batches that got full.

        HOT: once per answer, a few times per batch (benchmarks/spark).
        """
        if self._narrowing is not None:
            fetched = self._narrowed(fetched, self._narrowing)
        columns, records = self._columns, fetched.records
        start, end = max(self._span.start, fetched.offset), self._span.end
        visibility = Visibility(_BATCH_LIMIT_BYTES, fetched.aborted)
        done = 0
        for at, header in fetched.batches:
            if at < done:
                continue  # came with the one before
            if header.base_offset >= end:
                break
            done = columns.begin_plain(records, at, start, end)
            if done == at and not self._begin(fetched, at, header, visibility):
                continue
            while not columns.fill():
                yield self._taken()
            if columns.full:
                yield self._taken()
        columns.let_go()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is left when nothing more comes."""
        if self._columns.rows:
            yield self._taken()

    def _narrowed(self, fetched: Fetched, narrowing: Narrowing) -> Fetched:
        """The answer without what the filter does not choose; offsets are what they were."""
        try:
            left = memoryview(narrowing.take(fetched.records).data)
        except CorruptBatchError as error:
            raise CorruptBatchError(
                f"partition {self._span.topic}-{self._span.partition} from offset "
                f"{fetched.offset} on: {error}"
            ) from error
        return fetched._replace(records=left, batches=list(batches(left)))

    def _begin(
        self, fetched: Fetched, at: int, header: BatchHeader, visibility: Visibility
    ) -> bool:
        """Check the batch and hand it to the columns; false if nothing of it is shown."""
        records = fetched.records
        try:
            check(records, at)
            if not visibility.shows(records, at, header) or not header.records_count:
                return False
            appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
            self._columns.begin(
                payload_of(records, at, header, _BATCH_LIMIT_BYTES),
                header.records_count,
                header.base_offset,
                header.last_offset_delta,
                header.base_timestamp,
                header.max_timestamp if appended else None,
                max(self._span.start, fetched.offset),
                self._span.end,
            )
        except CorruptBatchError as error:
            raise CorruptBatchError(
                f"partition {self._span.topic}-{self._span.partition} at offset "
                f"{header.base_offset}: {error}; to go on behind it, begin at "
                f"{header.next_offset}"
            ) from error
        return True

    def _taken(self) -> pa.RecordBatch:
        filled = self._columns.take()
        arrays = [self._array(name, filled) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, name: str, filled: Filled) -> pa.Array:
        kind, rows = ARROW.field(name).type, filled.rows
        match name:
            case "key" | "value":
                column = filled.keys if name == "key" else filled.values
                assert column is not None, f"column {name} was not filled"
                return _bytes(kind, rows, column)
            case "topic" | "partition":
                return self._constant(name, rows)
            case "offset":
                return _numbers(kind, rows, filled.offsets)
            case "timestamp":
                return _numbers(kind, rows, filled.times)
            case "timestampType":
                return _numbers(kind, rows, filled.kinds)
            case _:
                assert filled.headers is not None, f"column {name} was not filled"
                return _headers(kind, rows, filled.headers)

    def _constant(self, name: str, rows: int) -> pa.Array:
        """A column that is the same in every row; made once, as long as was ever needed."""
        known = self._constants.get(name)
        if known is None or len(known) < rows:
            value = self._span.topic if name == "topic" else self._span.partition
            known = pa.repeat(pa.scalar(value, ARROW.field(name).type), rows)
            self._constants[name] = known
        return known.slice(0, rows)


def _numbers(kind: pa.DataType, rows: int, numbers: object) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(numbers)], 0)


def _bytes(kind: pa.DataType, rows: int, column: ByteColumn) -> pa.Array:
    content = pa.py_buffer(memoryview(column.content)[: column.content_bytes])
    buffers = [_bitmap(column), pa.py_buffer(column.ends), content]
    return pa.Array.from_buffers(kind, rows, buffers, column.nulls)


def _headers(kind: pa.DataType, rows: int, column: HeaderColumn) -> pa.Array:
    members = len(column.names.ends) - 1
    names = _bytes(_HEADER.field("key").type, members, column.names)
    values = _bytes(_HEADER.field("value").type, members, column.values)
    pairs = pa.Array.from_buffers(_HEADER, members, [None], 0, children=[names, values])
    buffers = [_bitmap(column), pa.py_buffer(column.ends)]
    return pa.Array.from_buffers(kind, rows, buffers, column.nulls, children=[pairs])


def _bitmap(column: ByteColumn | HeaderColumn) -> pa.Buffer | None:
    return pa.py_buffer(column.bits) if column.nulls else None
