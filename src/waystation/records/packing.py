# cython: annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Columns as records: the rows of Arrow's buffers, written as batches hold them.

The way back of ``columns.py``: keys, values, times and headers lie side by side as Arrow lays
them out, and no Python object is made for a row.  What holds here:

1. rows that were handed over in one order are in the batches of their partition in that order;
2. a record with a key goes to the partition that every Kafka client sends it to
   (``client/partitioner.py``), unless the row names another one;
3. a batch takes rows until the next does not fit, though a single one may be larger;
4. nothing is read past a buffer, whatever the ends in a column say;
5. both twins write the same bytes: ``packing.pxd`` gives the C types, as ``codec.pxd`` does.

Rows are spread over lanes first (``lanes_of``, ``in_lanes``), then each lane's batch is filled
(``RowWriter``).  Arrow itself is not known here.
"""

from array import array

from waystation.model.errors import CorruptBatchError, InvalidRecordError, InvalidTimestampError
from waystation.records.header import HEADER_BYTES
from waystation.records.record import Buffer

__all__ = [
    "COMPILED",
    "ByteRows",
    "HeaderRows",
    "NumberRows",
    "RowWriter",
    "Rows",
    "in_lanes",
    "lanes_of",
]

COMPILED = not __file__.endswith(".py")

_NULL, _BROKEN = -1, -2
_FIRST_ROOM_BYTES = 1 << 14
_MICROS = 1_000
# Murmur2's own, and the seed that Kafka's clients agreed on.
_M, _SEED, _WORD = 0x5BD1E995, 0x9747B28C, 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


class ByteRows:
    """A column of bytes: which are not null, where each ends, the contents one after the other.

    Row 0 is the one at ``first``; without ``bits`` none is null.
    """

    __slots__ = ("_bits", "_content", "_ends", "_first", "_has_nulls")

    def __init__(
        self, bits: Buffer | None, ends: memoryview, content: Buffer, first: int, count: int
    ) -> None:
        _check_room(bits, first + count)
        if len(ends) <= first + count:
            raise CorruptBatchError(f"{len(ends)} ends are too few for {first + count} rows")
        self._bits, self._has_nulls = b"" if bits is None else bits, bits is not None
        self._ends, self._content, self._first = ends, content, first

    def _start(self, row: int) -> int:
        return self._ends[self._first + row]

    def _length(self, row: int) -> int:
        """Bytes of the row; -1 if it is null, -2 if they are not all there."""
        at = self._first + row
        if self._has_nulls and not self._bits[at >> 3] >> (at & 7) & 1:
            return _NULL
        start = self._ends[at]
        end = self._ends[at + 1]
        if start < 0 or end < start or end > len(self._content):
            return _BROKEN
        return end - start

    def _copy(self, row: int, length: int, out: bytearray, to: int) -> None:
        _copy(self._content, self._ends[self._first + row], length, out, to)

    def _hash(self, row: int, length: int) -> int:
        return _murmur2(self._content, self._ends[self._first + row], length)


class NumberRows:
    """A column of 64-bit numbers, of which some may be null."""

    __slots__ = ("_bits", "_first", "_has_nulls", "_numbers")

    def __init__(self, bits: Buffer | None, numbers: memoryview, first: int, count: int) -> None:
        _check_room(bits, first + count)
        if len(numbers) < first + count:
            raise CorruptBatchError(f"{len(numbers)} numbers are too few for {first + count} rows")
        self._bits, self._has_nulls = b"" if bits is None else bits, bits is not None
        self._numbers, self._first = numbers, first

    def _is_null(self, row: int) -> bool:
        at = self._first + row
        return self._has_nulls and not self._bits[at >> 3] >> (at & 7) & 1

    def _get(self, row: int) -> int:
        return self._numbers[self._first + row]


class HeaderRows:
    """A column of lists, each of names and values that lie in columns of their own."""

    __slots__ = ("_bits", "_ends", "_first", "_has_nulls", "_members", "_names", "_values")

    def __init__(
        self,
        bits: Buffer | None,
        ends: memoryview,
        names: ByteRows,
        values: ByteRows,
        members: int,
        first: int,
        count: int,
    ) -> None:
        _check_room(bits, first + count)
        if len(ends) <= first + count:
            raise CorruptBatchError(f"{len(ends)} ends are too few for {first + count} rows")
        self._bits, self._has_nulls = b"" if bits is None else bits, bits is not None
        self._ends, self._first = ends, first
        self._names, self._values, self._members = names, values, members

    def _count(self, row: int) -> int:
        """How many headers the row has, none if the list is null; -2 if they are not there."""
        at = self._first + row
        if self._has_nulls and not self._bits[at >> 3] >> (at & 7) & 1:
            return 0
        start = self._ends[at]
        end = self._ends[at + 1]
        if start < 0 or end < start or end > self._members:
            return _BROKEN
        return end - start

    def _size(self, row: int, count: int) -> int:
        """What they take in a record; -1 if one has no name, -2 if contents are not there."""
        size = 0
        start = self._ends[self._first + row]
        for member in range(start, start + count):
            name = self._names._length(member)
            value = self._values._length(member)
            if name < 0:
                return name  # null is as wrong as broken
            if value == _BROKEN:
                return _BROKEN
            size += _field_size(name) + _field_size(value)
        return size

    def _write(self, row: int, count: int, out: bytearray, to: int) -> int:
        start = self._ends[self._first + row]
        for member in range(start, start + count):
            length = self._names._length(member)
            to = _put_number(out, to, length)
            self._names._copy(member, length, out, to)
            to += length
            length = self._values._length(member)
            to = _put_number(out, to, length)
            if length > 0:
                self._values._copy(member, length, out, to)
                to += length
        return to


class Rows:
    """Columns of equal length that become records; a time that is not said is ``now_ms``.

    Times are microseconds since 1970, as Spark has them.
    """

    __slots__ = ("_headers", "_keys", "_now_ms", "_times", "_values", "count")

    def __init__(
        self,
        count: int,
        values: ByteRows | None,
        keys: ByteRows | None = None,
        times: NumberRows | None = None,
        headers: HeaderRows | None = None,
        *,
        now_ms: int,
    ) -> None:
        self.count, self._now_ms = count, now_ms
        self._keys, self._values, self._times, self._headers = keys, values, times, headers


class RowWriter:
    """One batch on its way: room for the header, then the records of the rows that came so far.

    Offsets count from zero and times from that of the first record, as a batch wants them.
    """

    __slots__ = (
        "_wanted_bytes",
        "base_timestamp",
        "max_timestamp",
        "out",
        "records_count",
        "size_bytes",
    )

    def __init__(self, room_bytes: int = _FIRST_ROOM_BYTES) -> None:
        self.out = bytearray(max(room_bytes, HEADER_BYTES))
        self.size_bytes = HEADER_BYTES
        self.records_count = self._wanted_bytes = 0
        self.base_timestamp = self.max_timestamp = -1

    def fill(self, rows: Rows, order: "array[int]", first: int, stop: int, limit_bytes: int) -> int:
        """Append the rows that ``order`` names in ``[first, stop)``, up to ``limit_bytes``.

        The answer is the position in ``order`` of the first that did not fit.  An empty batch
        takes one row however large it is.  A row that cannot be a record is
        ``InvalidRecordError``; those before it are in the batch then.

        HOT: for every partition once per Arrow batch that Spark writes: 35 ns per row of 100 B
        compiled, 75 ns with a key and its hash, 3 to 4 µs pure (benchmarks/records/packing.py).
        """
        while True:
            first = self._fill(rows, order, first, stop, self.out, limit_bytes)
            if not self._wanted_bytes:
                return first
            # The buffer grows by doubling, and no further than the batch may.
            room_bytes = max(self._wanted_bytes, min(2 * len(self.out), limit_bytes))
            self.out.extend(bytes(room_bytes - len(self.out)))

    def _fill(
        self,
        rows: Rows,
        order: "array[int]",
        first: int,
        stop: int,
        out: bytearray,
        limit_bytes: int,
    ) -> int:
        """As ``fill``, for as long as there is room in ``out``; how much is wanted is noted."""
        keys, values, times, headers = rows._keys, rows._values, rows._times, rows._headers
        at = self.size_bytes
        self._wanted_bytes = 0
        if first < 0 or stop > len(order):
            raise IndexError("an order of other rows")
        place = first
        while place < stop:
            row = order[place]
            if row < 0 or row >= rows.count:
                raise IndexError("an order of other rows")
            timestamp = rows._now_ms
            if times is not None and not times._is_null(row):
                timestamp = times._get(row)
                if timestamp < 0:
                    raise _no_time(row)
                timestamp = timestamp // _MICROS
            if self.records_count == 0:
                self.base_timestamp = timestamp
            timestamp_delta = timestamp - self.base_timestamp
            key_bytes = _NULL if keys is None else keys._length(row)
            value_bytes = _NULL if values is None else values._length(row)
            header_count = header_bytes = 0
            if headers is not None:
                header_count = headers._count(row)
                header_bytes = headers._size(row, header_count)
            if key_bytes < _NULL or value_bytes < _NULL or header_count < 0 or header_bytes < 0:
                raise _no_record(row, header_bytes)
            length = 1 + _number_size(timestamp_delta) + _number_size(self.records_count)
            length += _field_size(key_bytes) + _field_size(value_bytes)
            length += _number_size(header_count) + header_bytes
            end = at + _number_size(length) + length
            if end > limit_bytes and self.records_count > 0:
                break
            if end > len(out):
                self._wanted_bytes = end
                break
            at = _put_number(out, at, length)
            out[at] = 0
            at = _put_number(out, at + 1, timestamp_delta)
            at = _put_number(out, at, self.records_count)
            at = _put_number(out, at, key_bytes)
            if keys is not None and key_bytes > 0:
                keys._copy(row, key_bytes, out, at)
                at += key_bytes
            at = _put_number(out, at, value_bytes)
            if values is not None and value_bytes > 0:
                values._copy(row, value_bytes, out, at)
                at += value_bytes
            at = _put_number(out, at, header_count)
            if headers is not None and header_count > 0:
                at = headers._write(row, header_count, out, at)
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
            self.records_count += 1
            self.size_bytes = at
            place += 1
        return place


# --- lanes ----------------------------------------------------------------------------------


def lanes_of(
    rows: Rows,
    partitions: NumberRows | None,
    topics: "array[int] | None",
    firsts: "array[int]",
    counts: "array[int]",
    lanes: "array[int]",
) -> int:
    """Note the lane of every row; how many rows have one, before one that names no partition.

    The partitions of topic ``t``, ``counts[t]`` of them, are the lanes from ``firsts[t]`` on, and
    the lane behind them is for records without a key, which may go to any partition.  Where a
    topic has a single partition these go there, in order with the others.
    """
    keys = rows._keys
    if len(lanes) < rows.count or len(firsts) == 0 or len(firsts) != len(counts):
        raise IndexError("lanes for other rows")
    if topics is not None and len(topics) < rows.count:
        raise IndexError("topics of other rows")
    for row in range(rows.count):
        topic = 0 if topics is None else topics[row]
        if topic < 0 or topic >= len(firsts):
            raise IndexError("a topic without lanes")
        count = counts[topic]
        lane = firsts[topic]
        if partitions is not None and not partitions._is_null(row):
            wanted = partitions._get(row)
            if wanted < 0 or wanted >= count:
                return row
            lane += wanted
        elif count > 1:
            length = _NULL if keys is None else keys._length(row)
            if length == _BROKEN:
                raise _no_record(row, 0)
            if keys is None or length < 0:
                lane += count
            else:
                lane += (keys._hash(row, length) & _POSITIVE) % count
        lanes[row] = lane
    return rows.count


def in_lanes(lanes: "array[int]", count: int, order: "array[int]", starts: "array[int]") -> None:
    """Put the numbers of ``count`` rows into ``order``, lane by lane, each in its own order.

    Those of lane ``n`` are then in ``[starts[n], starts[n + 1])``; there is one start more than
    there are lanes.
    """
    last = len(starts) - 1
    if len(lanes) < count or len(order) < count or last < 1:
        raise IndexError("no room for the rows of all lanes")
    for lane in range(last + 1):
        starts[lane] = 0
    for row in range(count):
        lane = lanes[row]
        if lane < 0 or lane >= last:
            raise IndexError("a lane that is not there")
        starts[lane] += 1
    total = 0
    for lane in range(last + 1):
        total += starts[lane]
        starts[lane] = total
    # Each start is behind the lane's rows now; going back through the rows moves it before them.
    for row in range(count - 1, -1, -1):
        lane = lanes[row]
        starts[lane] -= 1
        order[starts[lane]] = row


# --- behind the scenes ----------------------------------------------------------------------


def _check_room(bits: Buffer | None, rows: int) -> None:
    if bits is not None and len(bits) * 8 < rows:
        raise CorruptBatchError(f"{len(bits)} bytes of validity are too few for {rows} rows")


def _no_time(row: int) -> InvalidTimestampError:
    return InvalidTimestampError(f"row {row} has a time before 1970, which no record can have")


def _no_record(row: int, header_bytes: int) -> InvalidRecordError | CorruptBatchError:
    if header_bytes == _NULL:
        return InvalidRecordError(f"row {row} has a header without a name: give each a key")
    return CorruptBatchError(f"row {row} is not all there: the ends in its columns contradict them")


def _murmur2(content: Buffer, at: int, length: int) -> int:
    """The 32 bits, unsigned, that Kafka's Java client computes for these bytes."""
    h = _SEED ^ length
    stop = at + (length & ~3)
    while at < stop:
        k = content[at] | content[at + 1] << 8 | content[at + 2] << 16 | content[at + 3] << 24
        k = (k * _M) & _WORD
        h = ((h * _M) & _WORD) ^ (((k ^ (k >> 24)) * _M) & _WORD)
        at += 4
    left = length & 3
    if left:
        k = content[at]
        if left > 1:
            k |= content[at + 1] << 8
        if left > 2:
            k |= content[at + 2] << 16
        h = ((h ^ k) * _M) & _WORD
    h = ((h ^ (h >> 13)) * _M) & _WORD
    return h ^ (h >> 15)


def _copy(content: Buffer, at: int, length: int, out: bytearray, to: int) -> None:
    """A compiler makes whole words of it; the pure twin has its own."""
    for place in range(length):
        out[to + place] = content[at + place]


def _copy_at_once(content: Buffer, at: int, length: int, out: bytearray, to: int) -> None:
    out[to : to + length] = content[at : at + length]


if not COMPILED:
    globals()["_copy"] = _copy_at_once


def _number_size(value: int) -> int:
    """Bytes of a signed number: seven bits in each."""
    raw = value << 1 if value >= 0 else (-(value + 1) << 1) | 1
    size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


def _field_size(length: int) -> int:
    return 1 if length < 0 else _number_size(length) + length


def _put_number(out: bytearray, at: int, value: int) -> int:
    """Write a signed number; the position past it."""
    raw = value << 1 if value >= 0 else (-(value + 1) << 1) | 1
    while raw >= 0x80:
        out[at] = (raw & 0x7F) | 0x80
        raw >>= 7
        at += 1
    out[at] = raw
    return at + 1
