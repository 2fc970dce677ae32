"""Filters: which messages of a batch an expression means.

1. A filter is found right or wrong when it is made (``parsing.py``); afterwards it takes whatever
   messages hold, and raises nothing because of it.
2. The same expression means the same messages everywhere: in a batch of a log, in one that was
   fetched, in one message by itself.
3. A message is chosen if the expression is true of it, not if it is false or unknown.
4. The cost grows with the bytes of the messages, whatever they hold.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from waystation.filters import picking, values
from waystation.filters.checking import shown
from waystation.filters.compiling import Column, Stage, stages_of
from waystation.filters.documents import Path, Reader
from waystation.filters.key_bounds import keys_of
from waystation.filters.parsing import parse
from waystation.filters.syntax import Compare, Field, In, Kind, Root
from waystation.records import codec as record_codec
from waystation.records.batch import DECOMPRESSED_LIMIT_BYTES, payload_of
from waystation.records.codec import PLACE_FIELDS
from waystation.records.header import BatchHeader, TimestampType, peek
from waystation.records.record import Buffer

__all__ = ["Columns", "Filter", "Located", "locate"]

_LEAST_RECORD_BYTES = 7
# How many documents are searched before it is known whether that is of use.
_SAMPLE = 64


class Columns(Protocol):
    """Messages side by side, from which a filter takes what it asks for."""

    def column(self, column: Column, rows: Sequence[int]) -> list[Any]:
        """A field of each row that is not in a document."""

    def contents(self, rows: Sequence[int]) -> list[bytes | None]:
        """The values as they are."""

    def holding(self, rows: Sequence[int], needle: bytes) -> Sequence[int]:
        """The rows whose values hold ``needle``, or could in another spelling."""


class Filter:
    """An expression that was understood."""

    __slots__ = ("_stages", "expression", "keys", "keys_suffice")

    def __init__(self, expression: str) -> None:
        """Raises ``InvalidFilterError``, which marks the place."""
        self.expression = expression
        condition = parse(expression)
        self.keys = keys_of(condition)
        """One of these keys has every message that matches; ``None``: any may have."""
        self.keys_suffice = self.keys is not None and isinstance(condition, Compare | In)
        """Whether every message that has one of them matches."""
        self._stages = [_Step(stage) for stage in stages_of(condition)]

    def __repr__(self) -> str:
        return f"Filter({self.expression!r})"

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that it looks at, as they are written."""
        found = (one for step in self._stages for one in step.stage.columns)
        names = (shown(Field(one.root, one.path, one.kind, 0, 0)) for one in found)
        return tuple(dict.fromkeys(names))

    def matching(
        self,
        batch: Buffer,
        partition: int = 0,
        at: int = 0,
        *,
        limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    ) -> Sequence[int]:
        """Which records of the batch at ``at`` match, by their number in it.

        Raises ``CorruptBatchError`` if the records are malformed; the checksum is the caller's
        business, as for any batch.
        """
        header = peek(batch, at)
        if not header.records_count or header.is_control:
            return ()
        located = locate(payload_of(batch, at, header, limit_bytes), header)
        return self.chosen(located, range(header.records_count), partition)

    def chosen(self, columns: Columns, rows: Sequence[int], partition: int) -> Sequence[int]:
        """Those of ``rows``, which rise, that match.

        HOT: once per window of plain batches, or per batch (benchmarks/filters.py).
        """
        for step in self._stages:
            rows = step.left_of(columns, rows, partition)
            if not rows:
                break
        return rows

    def matches(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp: int = -1,
        partition: int = 0,
        offset: int = 0,
    ) -> bool:
        """Whether one message matches, which is in no batch."""
        writer = record_codec.RecordWriter(bytearray(), 1 << 62)
        writer.append(key, value, tuple(headers), timestamp=timestamp)
        places = array("q", bytes(8 * PLACE_FIELDS))
        record_codec.locate_records(writer.out, 1, offset, 0, timestamp, places)
        picking.date(places, 0, 1, timestamp, -1)
        return bool(self.chosen(Located(bytes(writer.out), places), range(1), partition))


class Located:
    """Columns out of records that were located, with their times made absolute."""

    __slots__ = ("places", "text")

    def __init__(self, text: bytes, places: "array[int]") -> None:
        self.text, self.places = text, places

    def column(self, column: Column, rows: Sequence[int]) -> list[Any]:
        """A field of each row that is not in a document."""
        text, places = self.text, self.places
        match column.root:
            case Root.OFFSET:
                return picking.offsets(places, rows)
            case Root.TIMESTAMP:
                return picking.times(places, rows)
            case Root.KEY if column.is_presence:
                return picking.have_keys(places, rows)
            case Root.KEY:
                return picking.keys(text, places, rows)
            case Root.HEADERS:
                name = str(column.path[0]).encode()
                pick = picking.have_headers if column.is_presence else picking.headers
                return pick(text, places, rows, name)
            case Root.VALUE if column.is_presence:
                return picking.have_values(places, rows)
            case _:
                return picking.values(text, places, rows)

    def contents(self, rows: Sequence[int]) -> list[bytes | None]:
        """The values as they are."""
        return picking.contents(self.text, self.places, rows)

    def holding(self, rows: Sequence[int], needle: bytes) -> Sequence[int]:
        """The rows whose values hold ``needle``, or could in another spelling."""
        return picking.holding(self.text, self.places, rows, needle)


def locate(payload: Buffer, header: BatchHeader) -> Located:
    """The records of one batch."""
    count = header.records_count
    room = min(count, len(payload) // _LEAST_RECORD_BYTES)  # memory is not taken for lies
    places = array("q", bytes(8 * PLACE_FIELDS * max(room, 0)))
    record_codec.locate_records(
        payload,
        count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        places,
    )
    date_batch(places, 0, count, header)
    return Located(bytes(payload), places)


def date_batch(places: "array[int]", first: int, stop: int, header: BatchHeader) -> None:
    """Give the records of a batch their times: the broker's where its clock dated them."""
    is_appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    if is_appended:
        picking.date(places, first, stop, 0, header.max_timestamp)
    else:
        picking.date(places, first, stop, header.base_timestamp, -1)


class _Step:
    """A stage, and the reader of documents that it needs."""

    __slots__ = ("_plain", "_reader", "stage")

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        inside = [one for one in stage.columns if _is_in_document(one)]
        self._reader = Reader(map(_wanted, inside)) if inside else None
        # Where each column comes from: the reader's number, or itself.
        numbers = iter(range(len(inside)))
        self._plain = [
            (one, next(numbers) if _is_in_document(one) else None) for one in stage.columns
        ]

    def left_of(self, columns: Columns, rows: Sequence[int], partition: int) -> Sequence[int]:
        """The rows for which the stage is true."""
        read: list[list[Any]] = []
        if self._reader is not None:
            if self.stage.needle is not None:
                rows = _worth_reading(columns, rows, self.stage.needle)
            read = self._reader.columns(columns.contents(rows))
        given = [
            columns.column(one, rows) if number is None else read[number]
            for one, number in self._plain
        ]
        return self.stage.check(rows, partition, *given)


def _worth_reading(columns: Columns, rows: Sequence[int], needle: bytes) -> Sequence[int]:
    """Without rows that cannot match, where that is cheaper to find out than to read them."""
    sample, rest = rows[:_SAMPLE], rows[_SAMPLE:]
    held = columns.holding(sample, needle)
    if 2 * len(held) > len(sample):
        return rows
    return [*held, *columns.holding(rest, needle)]


def _is_in_document(column: Column) -> bool:
    return column.root is Root.VALUE and bool(column.path)


def _wanted(column: Column) -> tuple[Path, Any]:
    if column.is_presence:
        return column.path, _is_there
    return column.path, _CONVERSIONS[column.kind]


def _is_there(_: object) -> bool:
    return True


_CONVERSIONS = {
    Kind.TEXT: values.as_text,
    Kind.NUMBER: values.strictly_number,
    Kind.BOOLEAN: values.strictly_boolean,
    Kind.TIMESTAMP: values.as_timestamp,
    Kind.ANY: values.normal,
}
