# cython: annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Records as columns: keys, values, times and offsets side by side, as Arrow lays them out.

A column of bytes is a bitmap of what is not null, the ends of all contents as 32-bit numbers,
and the contents one after the other; a column of numbers is an array.  What holds here:

1. a batch is found well-formed, all of it, before a row of it is in the columns;
2. key, value and headers are copied once, and not at all where their column is not wanted;
3. the columns take rows until they are full and the rest of a batch afterwards, so that what
   they hold is bounded, though a batch or a single record may be larger;
4. what was handed out is filled again only once nobody has a view of it (``lending.py``);
5. both twins fill them alike: ``columns.pxd`` gives the C types, as ``codec.pxd`` does.

Records are found by ``codec.locate_records`` and ``locate_batches``; their numbers say where the
parts of records lie.  Arrow itself is not known here.
"""

from array import array
from collections import deque
from collections.abc import Collection, Iterator
from typing import NamedTuple

from waystation.records.codec import (
    BATCH_FIELDS,
    PLACE_FIELDS,
    locate_batches,
    locate_records,
)
from waystation.records.lending import came_back
from waystation.records.record import Buffer

__all__ = ["COMPILED", "ByteColumn", "Filled", "HeaderColumn", "RecordColumns"]

COMPILED = not __file__.endswith(".py")

_FIELDS = PLACE_FIELDS
_BATCH_FIELDS = BATCH_FIELDS
# Where a record goes on behind its timestamp is of no use here: its kind takes that place.
_KIND = 3
_OFFSET, _TIMESTAMP, _KEY_AT, _KEY_BYTES, _VALUE_BYTES = range(4, PLACE_FIELDS)
_MICROS = 1_000
# The furthest times in milliseconds that are microseconds in 64 bits too.
_LATEST_MS = 9_223_372_036_854_775
_EARLIEST_MS = -9_223_372_036_854_775
# What a row takes beside its contents: offset, time and its kind, two ends.
_ROW_BYTES = 28
# In the header of a batch: the lower byte of its attributes, the time that others count from.
_ATTRIBUTES_AT = 22
_BASE_TIMESTAMP_AT = 27
_LOG_APPEND_TIME = 0x08
_LEAST_RECORD_BYTES = 7
_FIRST_ROWS = 1 << 12
_WINDOW_BATCHES = 1 << 10
# Spark has not let go of one batch when it asks for the next, and two wait for it.
_MOST_LENT = 5


class ByteColumn(NamedTuple):
    """Contents that may be null; each buffer may be longer than the rows need it."""

    nulls: int
    bits: bytearray
    ends: "array[int]"
    content: bytearray
    content_bytes: int


class HeaderColumn(NamedTuple):
    """Lists of names and values: where the list of each row ends, and all their members.

    A record without headers has a null instead of a list, as Spark's own source shows it.
    """

    nulls: int
    bits: bytearray
    ends: "array[int]"
    names: ByteColumn
    values: ByteColumn


class Filled(NamedTuple):
    """So many rows of every column that was wanted; times are microseconds since 1970.

    The buffers are lent: who needs them for longer than it takes to look holds a view of each.
    """

    rows: int
    offsets: "array[int]"
    times: "array[int]"
    kinds: "array[int]"
    keys: ByteColumn | None
    values: ByteColumn | None
    headers: HeaderColumn | None

    @property
    def lent(self) -> "Iterator[bytearray | array[int]]":
        """All buffers that can be filled again."""
        yield from (self.offsets, self.times, self.kinds)
        for column in (self.keys, self.values):
            if column is not None:
                yield from (column.bits, column.ends, column.content)


class RecordColumns:
    """Columns that are filled batch by batch, handed out when they are full, and begun anew.

    ``begin`` names a batch, ``fill`` moves its rows in for as long as there is room, ``take``
    hands out.  ``wanted`` are those of offset, timestamp, timestampType, key, value, headers.
    """

    __slots__ = (
        "_batches",
        "_headers",
        "_keys",
        "_kinds",
        "_lent",
        "_next",
        "_offsets",
        "_payload",
        "_places",
        "_size_bytes",
        "_stop",
        "_target_bytes",
        "_target_rows",
        "_text",
        "_times",
        "_values",
        "_wanted",
        "rows",
    )

    def __init__(self, wanted: Collection[str], *, target_bytes: int, target_rows: int) -> None:
        self._wanted = frozenset(wanted)
        self._target_bytes, self._target_rows = target_bytes, target_rows
        self._places = array("q", bytes(8 * PLACE_FIELDS * _FIRST_ROWS))
        self._batches = array("q", bytes(8 * BATCH_FIELDS * _WINDOW_BATCHES))
        self._payload: Buffer = b""
        self._text: bytes | None = None
        self._next = self._stop = 0
        self.rows = self._size_bytes = 0
        self._lent: deque[Filled] = deque()
        self._offsets, self._times, self._kinds = array("q"), array("q"), array("i")
        self._keys = _Bytes() if "key" in self._wanted else None
        self._values = _Bytes() if "value" in self._wanted else None
        self._headers = _Headers() if "headers" in self._wanted else None

    @property
    def full(self) -> bool:
        """Whether as much is in them as they should hold."""
        return self.rows >= self._target_rows or self._size_bytes >= self._target_bytes

    def begin(
        self,
        payload: Buffer,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp: int,
        append_time: int | None,
        start: int,
        end: int,
    ) -> None:
        """Go on with the records of a batch whose offsets are in ``[start, end)``.

        Refuses whatever ``codec.check_records`` refuses.  An ``append_time`` is the timestamp
        of every record: the broker's clock dated the batch, not the client's.
        """
        self._next = self._stop = 0
        if count * _LEAST_RECORD_BYTES <= len(payload):  # memory is not taken for lies
            _widen(self._places, count * PLACE_FIELDS)
        locate_records(payload, count, base_offset, last_offset_delta, base_timestamp, self._places)
        timestamp = base_timestamp if append_time is None else append_time
        _date(self._places, 0, count, timestamp, append_time is not None)
        self._payload, self._text = payload, None
        self._next, self._stop = _within(self._places, count, start, end)

    def begin_plain(self, window: Buffer, at: int, start: int, end: int) -> int:
        """As ``begin``, with all plain batches from ``at`` on for which there is room.

        Answers the position behind them; ``at`` itself if a batch lies there that must be
        looked at by itself (``codec.locate_batches`` says which).  Checksums are verified.

        HOT: once per answer where batches are small: 0.6 µs for one of a single record of 1 KB,
        which costs 9 µs by itself (benchmarks/records/columns.py).
        """
        self._next = self._stop = 0
        found = locate_batches(window, at, self._places, self._batches)
        if not found:
            return at
        _date_batches(window, self._places, self._batches, found)
        if window is not self._payload:
            self._payload, self._text = window, None
        last = (found - 1) * BATCH_FIELDS
        count = self._batches[last + 3] + self._batches[last + 4]
        self._next, self._stop = _within(self._places, count, start, end)
        return self._batches[last] + self._batches[last + 1]

    def fill(self) -> bool:
        """Move rows of the batch in; false if there was no room for all of them.

        HOT: once per batch read by Spark: 36 ns per record of 100 B compiled, 3 µs pure.
        Columns are filled one after the other, so that one nobody wants costs nothing
        (benchmarks/records/columns.py).
        """
        first = self._next
        stop, key_bytes, value_bytes, size_bytes = _fitting(
            self._places,
            first,
            self._stop,
            self._target_rows - self.rows,
            self._target_bytes - self._size_bytes,
            self.rows == 0,
            self._keys is not None,
            self._values is not None,
            self._headers is not None,
        )
        if stop > first:
            self._fill_numbers(first, stop)
            if self._keys is not None:
                self._keys.fill(
                    self._payload, self._places, first, stop, True, self.rows, key_bytes
                )
            if self._values is not None:
                self._values.fill(
                    self._payload, self._places, first, stop, False, self.rows, value_bytes
                )
            if self._headers is not None:
                if self._text is None:
                    self._text = bytes(self._payload)
                self._headers.fill(self._text, self._places, first, stop, self.rows)
            self.rows += stop - first
            self._size_bytes += size_bytes
            self._next = stop
        return stop == self._stop

    def let_go(self) -> None:
        """Hold no payload any more; what is left of the batch is not filled in."""
        self._next = self._stop = 0
        self._payload, self._text = b"", None

    def take(self) -> Filled:
        """What was filled in; the columns are empty afterwards."""
        filled = Filled(
            self.rows,
            self._offsets,
            self._times,
            self._kinds,
            None if self._keys is None else self._keys.take(),
            None if self._values is None else self._values.take(),
            None if self._headers is None else self._headers.take(),
        )
        is_usual = self._size_bytes <= 2 * self._target_bytes
        self.rows = self._size_bytes = 0
        self._renew()
        if is_usual:  # what one large record needed is not kept for all that follow
            self._lent.append(filled)
        return filled

    def _renew(self) -> None:
        """Go on with buffers that came back, or with new ones."""
        again: Filled | None = None
        if self._lent and came_back(self._lent[0].lent):
            again = self._lent.popleft()
        elif len(self._lent) == _MOST_LENT:
            self._lent.popleft()
        self._offsets = array("q") if again is None else again.offsets
        self._times = array("q") if again is None else again.times
        self._kinds = array("i") if again is None else again.kinds
        if self._keys is not None:
            self._keys.begin(None if again is None else again.keys)
        if self._values is not None:
            self._values.begin(None if again is None else again.values)

    def _fill_numbers(self, first: int, stop: int) -> None:
        row = self.rows
        upto = row + stop - first
        if "offset" in self._wanted:
            _widen(self._offsets, upto)
            _fill_offsets(self._places, first, stop, self._offsets, row)
        if "timestamp" in self._wanted:
            _widen(self._times, upto)
            _fill_times(self._places, first, stop, self._times, row)
        if "timestampType" in self._wanted:
            _widen(self._kinds, upto)
            _fill_kinds(self._places, first, stop, self._kinds, row)


class _Bytes:
    """One column of bytes on its way."""

    __slots__ = ("bits", "content", "content_bytes", "ends", "nulls")

    def __init__(self) -> None:
        self.begin(None)

    def begin(self, again: ByteColumn | None) -> None:
        """Be empty, in the buffers of a column that came back if there is one."""
        self.nulls = self.content_bytes = 0
        self.bits = bytearray() if again is None else again.bits
        self.ends = array("i", [0]) if again is None else again.ends
        self.content = bytearray() if again is None else again.content

    def fill(
        self,
        payload: Buffer,
        places: "array[int]",
        first: int,
        stop: int,
        is_key: bool,
        row: int,
        more_bytes: int,
    ) -> None:
        upto = row + stop - first
        _lengthen(self.bits, (upto + 7) // 8)
        _widen(self.ends, upto + 1)
        _lengthen(self.content, self.content_bytes + more_bytes)
        self.nulls += _fill_bytes(
            payload,
            places,
            first,
            stop,
            is_key,
            self.bits,
            self.ends,
            self.content,
            row,
            self.content_bytes,
        )
        self.content_bytes += more_bytes

    def take(self) -> ByteColumn:
        return ByteColumn(self.nulls, self.bits, self.ends, self.content, self.content_bytes)


class _Headers:
    """The column of headers on its way; its members come one by one, for most have few."""

    __slots__ = ("bits", "ends", "names", "nulls", "values")

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.nulls = 0
        self.bits = bytearray()
        self.ends = array("i", [0])
        self.names, self.values = _Members(), _Members()

    def fill(self, text: bytes, places: "array[int]", first: int, stop: int, row: int) -> None:
        _lengthen(self.bits, (row + stop - first + 7) // 8)
        self.nulls += _fill_headers(
            text, text, places, first, stop, self.bits, self.ends, self.names, self.values, row
        )

    def take(self) -> HeaderColumn:
        names, values = self.names.take(), self.values.take()
        taken = HeaderColumn(self.nulls, self.bits, self.ends, names, values)
        self._begin()
        return taken


class _Members:
    """All names, or all values, of headers."""

    __slots__ = ("bits", "content", "count", "ends", "nulls")

    def __init__(self) -> None:
        self.count = self.nulls = 0
        self.bits = bytearray()
        self.ends = array("i", [0])
        self.content = bytearray()

    def append(self, member: bytes | None) -> None:
        if self.count % 8 == 0:
            self.bits.append(0)
        if member is None:
            self.nulls += 1
        else:
            self.bits[self.count // 8] |= 1 << self.count % 8
            self.content += member
        self.count += 1
        self.ends.append(len(self.content))

    def take(self) -> ByteColumn:
        return ByteColumn(self.nulls, self.bits, self.ends, self.content, len(self.content))


# --- room -----------------------------------------------------------------------------------


def _lengthen(buffer: bytearray, size_bytes: int) -> None:
    missing = size_bytes - len(buffer)
    if missing > 0:
        buffer.extend(bytes(max(missing, len(buffer) // 4)))


def _widen(numbers: "array[int]", count: int) -> None:
    missing = count - len(numbers)
    if missing > 0:
        numbers.frombytes(bytes(numbers.itemsize * max(missing, len(numbers) // 4)))


# --- columns --------------------------------------------------------------------------------


def _date(places: "array[int]", first: int, count: int, timestamp: int, appended: bool) -> None:
    """Note when records are from, and whose clock said so; their times were relative."""
    for index in range(first, first + count):
        at = index * _FIELDS
        places[at + _KIND] = 1 if appended else 0
        places[at + _TIMESTAMP] = timestamp + (0 if appended else places[at + _TIMESTAMP])


def _date_batches(window: Buffer, places: "array[int]", batches: "array[int]", found: int) -> None:
    for number in range(found):
        row = number * _BATCH_FIELDS
        at = batches[row]
        appended = window[at + _ATTRIBUTES_AT] & _LOG_APPEND_TIME != 0
        timestamp = batches[row + 6] if appended else _long(window, at + _BASE_TIMESTAMP_AT)
        _date(places, batches[row + 3], batches[row + 4], timestamp, appended)


def _long(window: Buffer, at: int) -> int:
    """The signed number in eight bytes, the most significant first."""
    value = window[at]
    if value >= 0x80:
        value -= 0x100
    for place in range(1, 8):
        value = value * 0x100 + window[at + place]
    return value


def _within(places: "array[int]", count: int, start: int, end: int) -> tuple[int, int]:
    """Which of the records, whose offsets rise, are in ``[start, end)``."""
    first = 0
    while first < count and places[first * _FIELDS + _OFFSET] < start:
        first += 1
    stop = count
    while stop > first and places[(stop - 1) * _FIELDS + _OFFSET] >= end:
        stop -= 1
    return first, stop


def _fitting(
    places: "array[int]",
    first: int,
    stop: int,
    room_rows: int,
    room_bytes: int,
    is_empty: bool,
    with_keys: bool,
    with_values: bool,
    with_headers: bool,
) -> tuple[int, int, int, int]:
    """Up to where there is room, and the bytes that keys, values and all of it then take.

    Empty columns take one record however large it is.
    """
    key_bytes = 0
    value_bytes = 0
    size_bytes = 0
    index = first
    while index < stop and index - first < room_rows:
        at = index * _FIELDS
        key = max(0, places[at + _KEY_BYTES])
        value = max(0, places[at + _VALUE_BYTES])
        size = _ROW_BYTES
        if with_headers:
            size += places[at + 1] - places[at]
        else:
            size += (key if with_keys else 0) + (value if with_values else 0)
        if size_bytes + size > room_bytes and not (is_empty and index == first):
            break
        size_bytes += size
        key_bytes += key
        value_bytes += value
        index += 1
    return index, key_bytes, value_bytes, size_bytes


def _fill_offsets(
    places: "array[int]", first: int, stop: int, offsets: "array[int]", row: int
) -> None:
    for index in range(first, stop):
        offsets[row] = places[index * _FIELDS + _OFFSET]
        row += 1


def _fill_times(places: "array[int]", first: int, stop: int, times: "array[int]", row: int) -> None:
    """Milliseconds become microseconds; what then has no place becomes the furthest that has."""
    for index in range(first, stop):
        time = places[index * _FIELDS + _TIMESTAMP]
        if time > _LATEST_MS:
            time = _LATEST_MS
        if time < _EARLIEST_MS:
            time = _EARLIEST_MS
        times[row] = time * _MICROS
        row += 1


def _fill_kinds(places: "array[int]", first: int, stop: int, kinds: "array[int]", row: int) -> None:
    for index in range(first, stop):
        kinds[row] = places[index * _FIELDS + _KIND]
        row += 1


def _fill_bytes(
    text: Buffer,
    places: "array[int]",
    first: int,
    stop: int,
    is_key: bool,
    bits: bytearray,
    ends: "array[int]",
    content: bytearray,
    row: int,
    to: int,
) -> int:
    """Keys or values of the records behind ``row`` and ``to``; how many of them are null."""
    nulls = 0
    for index in range(first, stop):
        place = index * _FIELDS
        length = places[place + _KEY_BYTES]
        at = places[place + _KEY_AT]
        if not is_key:
            at = _value_at(text, at, length)
            length = places[place + _VALUE_BYTES]
        if row & 7 == 0:
            bits[row >> 3] = 0
        if length >= 0:
            _copy(text, at, length, content, to)
            to += length
            bits[row >> 3] |= 1 << (row & 7)
        else:
            nulls += 1
        row += 1
        ends[row] = to
    return nulls


def _copy(text: Buffer, at: int, length: int, content: bytearray, to: int) -> None:
    """A compiler makes whole words of it; the pure twin has its own."""
    for place in range(length):
        content[to + place] = text[at + place]


def _copy_at_once(text: Buffer, at: int, length: int, content: bytearray, to: int) -> None:
    content[to : to + length] = text[at : at + length]


if not COMPILED:
    globals()["_copy"] = _copy_at_once


def _value_at(text: Buffer, key_at: int, key_bytes: int) -> int:
    """Where the value begins: behind the key and the value's own length."""
    at = key_at + key_bytes if key_bytes > 0 else key_at
    while text[at] >= 0x80:
        at += 1
    return at + 1


def _fill_headers(
    text: bytes,
    view: bytes,
    places: "array[int]",
    first: int,
    stop: int,
    bits: bytearray,
    ends: "array[int]",
    names: _Members,
    values: _Members,
    row: int,
) -> int:
    """Headers of the records behind ``row``; how many of them have none.

    ``text`` and ``view`` are the same bytes, to cut and to read.  A name that is not UTF-8 gets
    replacement characters, as Kafka's consumer shows it.
    """
    nulls = 0
    for index in range(first, stop):
        place = index * _FIELDS
        at = _value_at(view, places[place + _KEY_AT], places[place + _KEY_BYTES])
        if places[place + _VALUE_BYTES] > 0:
            at += places[place + _VALUE_BYTES]
        count, at = _number(view, at)
        for _ in range(count):
            length, at = _number(view, at)
            names.append(text[at : at + length].decode("utf-8", "replace").encode())
            length, at = _number(view, at + length)
            values.append(text[at : at + length] if length >= 0 else None)
            at = at + length if length > 0 else at
        if count > 0:
            bits[row >> 3] |= 1 << (row & 7)
        else:
            nulls += 1
        row += 1
        ends.append(names.count)
    return nulls


def _number(view: Buffer, at: int) -> tuple[int, int]:
    """The number at ``at``, which was found well-formed, and the position past it."""
    raw = 0
    shift = 0
    byte = view[at]
    while byte >= 0x80:
        raw |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        byte = view[at]
    raw |= byte << shift
    return (raw >> 1) ^ -(raw & 1), at + 1
