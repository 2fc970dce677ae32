# cython: annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Records as bytes: the walks that check, decode and locate them, the encoder, the copier.

This file is plain Python and also compiles: ``codec.pxd`` beside it gives the C types, and
``setup.py`` builds both into an extension that Python then prefers.  The two twins pass the
same tests.  Whatever the bytes are, three promises hold in both:

1. a length is compared with what is left before it is believed, so nothing is read outside
   the payload and nothing is allocated for bytes that are not there;
2. a varint longer or larger than its type is an error, never a wrapped number;
3. the same input gives the same result or the same ``CorruptBatchError``.

The payload is the uncompressed records section of one batch; ``batch.py`` finds it.
Positions are indexes into it; a helper that finds bytes it must refuse answers position -1,
which every other helper passes on, so that a record is judged once, where it ends.
"""

from array import array
from collections.abc import Sequence

from crc32c import crc32c

from waystation.model.errors import CorruptBatchError, InvalidTimestampError
from waystation.records.record import Buffer, Headers, Row

__all__ = [
    "BATCH_FIELDS",
    "COMPILED",
    "PLACE_FIELDS",
    "RecordWriter",
    "check_records",
    "copy_records",
    "decode_records",
    "locate_batches",
    "locate_records",
    "record_sizes",
]

COMPILED = not __file__.endswith(".py")
"""False where no compiler was at hand: then work per record costs ten to a hundred times more."""

PLACE_FIELDS = 9
"""What is noted of each record that is located, in this order: where it starts and stops, where
it goes on behind its length and behind its timestamp, its offset, its timestamp relative to the
batch's, where its key begins, and the lengths of key and value, -1 for null."""

BATCH_FIELDS = 7
"""What is noted of each batch that is located: position, size, the offset behind it, the number
of its first record, how many it has, its producer, its greatest timestamp."""

# A length, attributes, timestamp, offset, null key, null value and no headers: a byte each.
_LEAST_RECORD_BYTES = 7
_PLACE_FIELDS = PLACE_FIELDS
_BATCH_FIELDS = BATCH_FIELDS
_FRAME_BYTES = 12
_HEADER_BYTES = 61
_MAGIC = 2
_LOG_APPEND_TIME = 0x08
_UINT32 = (1 << 32) - 1
_LEAST_HEADER_BYTES = 2
_MOST_VARINT_BYTES = 5
_INT32_MIN = -(1 << 31)
_INT32_MAX = (1 << 31) - 1
_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1


def check_records(payload: Buffer, count: int, last_offset_delta: int, base_timestamp: int) -> int:
    """Prove that ``payload`` is exactly ``count`` well-formed records with rising offsets.

    Returns how many of them have no key.

    HOT: once per produced batch that is not compressed, and the only work per record that a
    broker does: 11 ns compiled, 1.9 µs pure (benchmarks/records/codec.py).
    """
    end = len(payload)
    at = 0
    previous = -1
    keyless = 0
    _check_count(count, end)
    for index in range(count):
        length, at = _length(payload, at, end)
        if length < _LEAST_RECORD_BYTES - 1:
            raise _malformed(index)
        stop = at + length
        timestamp_delta, at = _varlong(payload, at + 1, stop)
        offset_delta, at = _varint(payload, at, stop)
        if not previous < offset_delta <= last_offset_delta:
            raise _malformed(index)
        previous = offset_delta
        length, at = _length(payload, at, stop)
        if length < 0:
            keyless += 1
        else:
            at += length
        at = _skip(payload, at, stop)
        at = _skip_headers(payload, at, stop)
        if at != stop or not _fits(base_timestamp, timestamp_delta):
            raise _malformed(index)
    if at != end:
        raise _left_over(count, end - at)
    return keyless


def locate_records(
    payload: Buffer,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    places: "array[int]",
) -> None:
    """Note where ``count`` records lie, refusing whatever ``check_records`` refuses.

    ``places`` has room for ``PLACE_FIELDS`` numbers a record, and is the caller's to use again.

    HOT: once per batch that is compressed and compacted (benchmarks/storage/compaction.py).
    """
    end = len(payload)
    _check_count(count, end)
    if count * _PLACE_FIELDS > len(places):
        raise IndexError(f"no room for the places of {count} records")
    found = _locate(
        payload, 0, end, count, base_offset, last_offset_delta, base_timestamp, places, 0
    )
    if found < 0:
        raise _left_over(count, -found)
    if found < count:
        raise _malformed(found)


def _locate(
    view: Buffer,
    at: int,
    end: int,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    places: "array[int]",
    to: int,
) -> int:
    """Go through the records in ``[at, end)``: ``count`` if all is well.

    Otherwise the number of the first that is malformed; or, below zero, how many bytes are left.
    """
    previous = -1
    for index in range(count):
        start = at
        length, body = _length(view, at, end)
        if length < _LEAST_RECORD_BYTES - 1:
            return index
        stop = body + length
        timestamp_delta, rest = _varlong(view, body + 1, stop)
        offset_delta, at = _varint(view, rest, stop)
        if not previous < offset_delta <= last_offset_delta:
            return index
        previous = offset_delta
        key_bytes, key_at = _length(view, at, stop)
        value_bytes, at = _length(view, key_at + key_bytes if key_bytes > 0 else key_at, stop)
        at = _skip_headers(view, at + value_bytes if value_bytes > 0 else at, stop)
        if at != stop or not _fits(base_timestamp, timestamp_delta):
            return index
        places[to] = start
        places[to + 1] = stop
        places[to + 2] = body
        places[to + 3] = rest
        places[to + 4] = base_offset + offset_delta
        places[to + 5] = timestamp_delta
        places[to + 6] = key_at
        places[to + 7] = key_bytes
        places[to + 8] = value_bytes
        to += _PLACE_FIELDS
    return at - end if at != end else count


def locate_batches(window: Buffer, at: int, places: "array[int]", batches: "array[int]") -> int:
    """Note where plain batches lie from ``at`` on, and all their records; how many batches.

    Plain is a batch of data that is neither compressed nor part of a transaction nor dated by
    compaction, has records, lies whole in ``window`` and matches its checksum.  Stops before
    the first that is not, and where there is no more room: whoever looks at that one by
    itself finds out what it is.

    HOT: a few times per megabyte that is compacted.  Small batches cost 0.4 µs this way, ten
    times less than one by one (benchmarks/storage/compaction.py).
    """
    return _locate_batches(memoryview(window), window, at, len(window), places, batches)


def _locate_batches(
    whole: memoryview, view: Buffer, at: int, end: int, places: "array[int]", batches: "array[int]"
) -> int:
    """As ``locate_batches``; ``whole`` and ``view`` are the same bytes, to cut and to read."""
    found = 0
    to = 0
    rooms = len(batches) // _BATCH_FIELDS
    while found < rooms and 0 <= at <= end - _HEADER_BYTES:
        stop = at + _FRAME_BYTES + _number(view, at + 8, 4)
        count = _number(view, at + 57, 4)
        base_offset = _number(view, at, 8)
        last_offset_delta = _number(view, at + 23, 4)
        if (
            not at + _HEADER_BYTES < stop <= end
            or view[at + 16] != _MAGIC
            or _number(view, at + 21, 2) & ~_LOG_APPEND_TIME
            or not 1 <= count <= (stop - at - _HEADER_BYTES) // _LEAST_RECORD_BYTES
            or to + count * _PLACE_FIELDS > len(places)
            or base_offset < 0
            or last_offset_delta < 0
            or not _fits(base_offset, last_offset_delta + 1)
            or crc32c(whole[at + 21 : stop]) != _number(view, at + 17, 4) & _UINT32
            or _locate(
                view,
                at + _HEADER_BYTES,
                stop,
                count,
                base_offset,
                last_offset_delta,
                _number(view, at + 27, 8),
                places,
                to,
            )
            != count
        ):
            return found
        row = found * _BATCH_FIELDS
        batches[row] = at
        batches[row + 1] = stop - at
        batches[row + 2] = base_offset + last_offset_delta + 1
        batches[row + 3] = to // _PLACE_FIELDS
        batches[row + 4] = count
        batches[row + 5] = _number(view, at + 43, 8)
        batches[row + 6] = _number(view, at + 35, 8)
        to += count * _PLACE_FIELDS
        found += 1
        at = stop
    return found


def _number(view: Buffer, at: int, size: int) -> int:
    """A signed number of ``size`` bytes, the most significant first."""
    value = view[at]
    if value >= 0x80:
        value -= 0x100
    for place in range(1, size):
        value = value * 0x100 + view[at + place]
    return value


def copy_records(
    payload: Buffer, places: "array[int]", count: int, shift_ms: int, out: bytearray
) -> bool:
    """Add the first ``count`` records of ``places`` to ``out``, every timestamp moved.

    ``shift_ms`` is what the batch's base timestamp loses, so that the records keep theirs.
    False, with ``out`` as it was, if one of them then has no place in 64 bits.

    HOT: once per batch that compaction changes.
    """
    if count * _PLACE_FIELDS > len(places):
        raise IndexError(f"no places of {count} records")
    raw = bytes(payload)
    if shift_ms:
        return _copy_moved(raw, len(raw), places, count, shift_ms, out)
    _copy_runs(raw, len(raw), places, count, out)
    return True


def _copy_runs(text: bytes, end: int, places: "array[int]", count: int, out: bytearray) -> None:
    """Records that lie one behind the other are copied together."""
    to = 0
    start = 0
    stop = 0
    for _ in range(count):
        if places[to] != stop:
            out += text[start:stop]
            start = places[to]
        stop = places[to + 1]
        if not 0 <= start <= stop <= end:
            raise IndexError("a record outside the payload")
        to += _PLACE_FIELDS
    out += text[start:stop]


def _copy_moved(
    text: bytes, end: int, places: "array[int]", count: int, shift_ms: int, out: bytearray
) -> bool:
    """Length and timestamp are written anew, what stands around them is copied."""
    before = len(out)
    to = 0
    for _ in range(count):
        stop = places[to + 1]
        body = places[to + 2]
        rest = places[to + 3]
        if not 0 <= body < rest <= stop <= end:
            raise IndexError("a record outside the payload")
        if not _fits(places[to + 5], shift_ms):
            del out[before:]
            return False
        timestamp_delta = places[to + 5] + shift_ms
        _append_varlong(out, 1 + _varlong_size(timestamp_delta) + stop - rest)
        out += text[body : body + 1]
        _append_varlong(out, timestamp_delta)
        out += text[rest:stop]
        to += _PLACE_FIELDS
    return True


def decode_records(
    payload: Buffer,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    append_time: int | None,
) -> list[Row]:
    """Decode ``count`` records, refusing whatever ``check_records`` refuses.

    An ``append_time`` is the timestamp of every record: the broker's clock dated the batch,
    not the client's.

    HOT: once per batch consumed.  80 ns per record of 100 B compiled, 2.1 µs pure.  Rows are
    plain tuples in the order of ``Record``'s fields, since making a NamedTuple of them costs
    more than all the decoding (benchmarks/records/codec.py).
    """
    raw = bytes(payload)
    return _decode(raw, raw, count, base_offset, last_offset_delta, base_timestamp, append_time)


def _decode(
    text: bytes,
    view: bytes,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    append_time: int | None,
) -> list[Row]:
    """As ``decode_records``; ``text`` and ``view`` are the same bytes, to cut and to read."""
    end = len(view)
    at = 0
    previous = -1
    appended = 0 if append_time is None else append_time
    own = append_time is None
    rows: list[Row] = []
    _check_count(count, end)
    if not _fits(base_offset, last_offset_delta):
        raise CorruptBatchError(f"offset {base_offset} + {last_offset_delta} is no offset")
    for index in range(count):
        length, at = _length(view, at, end)
        if length < _LEAST_RECORD_BYTES - 1:
            raise _malformed(index)
        stop = at + length
        timestamp_delta, at = _varlong(view, at + 1, stop)
        offset_delta, at = _varint(view, at, stop)
        if not previous < offset_delta <= last_offset_delta:
            raise _malformed(index)
        previous = offset_delta
        length, at = _length(view, at, stop)
        key = text[at : at + length] if length >= 0 else None
        length, at = _length(view, at + length if length > 0 else at, stop)
        value = text[at : at + length] if length >= 0 else None
        headers_at = at + length if length > 0 else at
        at = _skip_headers(view, headers_at, stop)
        if at != stop or not _fits(base_timestamp, timestamp_delta):
            raise _malformed(index)
        timestamp = base_timestamp + timestamp_delta if own else appended
        headers = _headers(text, view, headers_at, stop) if headers_at + 1 < stop else ()
        rows.append((base_offset + offset_delta, timestamp, key, value, headers))
    if at != end:
        raise _left_over(count, end - at)
    return rows


def record_sizes(payload: Buffer, count: int) -> list[int]:
    """Bytes that each record takes in ``payload``, its own length field included."""
    end = len(payload)
    at = 0
    sizes: list[int] = []
    _check_count(count, end)
    for index in range(count):
        start = at
        length, at = _length(payload, at, end)
        if length < _LEAST_RECORD_BYTES - 1:
            raise _malformed(index)
        at += length
        sizes.append(at - start)
    if at != end:
        raise _left_over(count, end - at)
    return sizes


class RecordWriter:
    """Encodes messages to the end of ``out`` as they come, up to ``limit_bytes``.

    Offsets count from zero and times from that of the first message, as a batch wants them.
    """

    __slots__ = ("base_timestamp", "limit_bytes", "max_timestamp", "out", "records_count")

    def __init__(self, out: bytearray, limit_bytes: int) -> None:
        self.out = out
        self.limit_bytes = limit_bytes
        self.records_count = 0
        self.base_timestamp = self.max_timestamp = -1

    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        *,
        timestamp: int,
    ) -> bool:
        """Add one message; false if it does not fit, which an empty writer says of one too large.

        Nothing is changed unless the answer is true, also when a type or a time is wrong.

        HOT: once per message produced; 0.2 µs compiled, 2 µs pure.  A class rather than a
        function, so that no Python frame is needed to keep count (benchmarks/records/codec.py).
        """
        try:
            return self._add(key, value, headers, timestamp)
        except OverflowError:  # the compiled twin's word for more than 64 bits
            raise _no_time(timestamp) from None

    def _add(
        self,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]],
        timestamp: int,
    ) -> bool:
        if not -1 <= timestamp < _INT64_MAX:
            raise _no_time(timestamp)
        base = timestamp if self.records_count == 0 else self.base_timestamp
        if not _append_record(
            self.out, self.limit_bytes, self.records_count, timestamp - base, key, value, headers
        ):
            return False
        self.base_timestamp = base
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.records_count += 1
        return True


# --- reading --------------------------------------------------------------------------------


def _varlong(view: Buffer, at: int, stop: int) -> tuple[int, int]:
    """The signed 64-bit number at ``at`` and the position past it."""
    raw = 0
    shift = 0
    while 0 <= at < stop and shift < 70:
        byte = view[at]
        at += 1
        if shift == 63 and byte > 1:
            break
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    return 0, -1


def _varint(view: Buffer, at: int, stop: int) -> tuple[int, int]:
    """The signed 32-bit number at ``at`` and the position past it."""
    if 0 <= at < stop:
        byte = view[at]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at + 1
        if at + 1 < stop and view[at + 1] < 0x80:
            raw = (byte & 0x7F) | (view[at + 1] << 7)
            return (raw >> 1) ^ -(raw & 1), at + 2
    value, past = _varlong(view, at, stop)
    if past - at > _MOST_VARINT_BYTES or not _INT32_MIN <= value <= _INT32_MAX:
        return 0, -1
    return value, past


def _length(view: Buffer, at: int, stop: int) -> tuple[int, int]:
    """The length at ``at``, of bytes that are all there, or -1 for null; where they begin."""
    length, at = _varint(view, at, stop)
    if at < 0 or length < -1 or length > stop - at:
        return -1, -1
    return length, at


def _skip(view: Buffer, at: int, stop: int) -> int:
    length, at = _length(view, at, stop)
    return at + length if length > 0 else at


def _skip_headers(view: Buffer, at: int, stop: int) -> int:
    count, at = _varint(view, at, stop)
    if at < 0 or not 0 <= count <= (stop - at) // _LEAST_HEADER_BYTES:
        return -1
    for _ in range(count):
        length, at = _length(view, at, stop)
        if length < 0:
            return -1
        at = _skip(view, at + length, stop)
    return at


def _headers(text: bytes, view: Buffer, at: int, stop: int) -> Headers:
    """The headers at ``at``, which ``_skip_headers`` found well-formed.

    A name that is not UTF-8 is decoded with replacement characters, as Kafka's consumer does.
    """
    count, at = _varint(view, at, stop)
    headers = []
    for _ in range(count):
        length, at = _length(view, at, stop)
        name = text[at : at + length].decode("utf-8", "replace")
        length, at = _length(view, at + length, stop)
        headers.append((name, text[at : at + length] if length >= 0 else None))
        at = at + length if length > 0 else at
    return tuple(headers)


def _fits(base: int, delta: int) -> bool:
    """True if the sum is a 64-bit number."""
    if delta >= 0:
        return base <= _INT64_MAX - delta
    return base >= _INT64_MIN - delta


def _check_count(count: int, payload_bytes: int) -> None:
    if not 0 <= count <= payload_bytes // _LEAST_RECORD_BYTES:
        raise CorruptBatchError(f"{count} records cannot be in {payload_bytes} bytes")


def _malformed(index: int) -> CorruptBatchError:
    return CorruptBatchError(
        f"record {index} of the batch is malformed: its lengths, numbers or offset contradict "
        "each other or the batch"
    )


def _left_over(count: int, left_bytes: int) -> CorruptBatchError:
    return CorruptBatchError(f"{left_bytes} bytes follow the batch's {count} records")


# --- writing --------------------------------------------------------------------------------


def _append_record(
    out: bytearray,
    limit_bytes: int,
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[str, Buffer | None]],
) -> bool:
    """Encode one record to the end of ``out``, or leave it as it was and answer false."""
    pairs = [(name.encode(), content) for name, content in headers] if headers else ()
    length = 1 + _varlong_size(timestamp_delta) + _varlong_size(offset_delta)
    length += _field_size(key) + _field_size(value) + _varlong_size(len(pairs))
    for name, content in pairs:
        length += _field_size(name) + _field_size(content)
    start = len(out)
    end = start + _varlong_size(length) + length
    if end > limit_bytes:
        return False
    try:
        _append_varlong(out, length)
        out.append(0)
        _append_varlong(out, timestamp_delta)
        _append_varlong(out, offset_delta)
        _append_field(out, key)
        _append_field(out, value)
        _append_varlong(out, len(pairs))
        for name, content in pairs:
            _append_field(out, name)
            _append_field(out, content)
        if len(out) != end:
            raise TypeError("a view of a record's bytes must have items of one byte")
    except BaseException:
        del out[start:]
        raise
    return True


def _no_time(timestamp: int) -> InvalidTimestampError:
    return InvalidTimestampError(f"{timestamp} is no time in milliseconds since 1970")


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-(value + 1) << 1) | 1


def _varlong_size(value: int) -> int:
    raw = _zigzag(value)
    size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


def _append_varlong(out: bytearray, value: int) -> None:
    raw = _zigzag(value)
    while raw >= 0x80:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)


def _field_size(content: Buffer | None) -> int:
    if content is None:
        return 1
    length = len(content)
    return _varlong_size(length) + length


def _append_field(out: bytearray, content: Buffer | None) -> None:
    if content is None:
        out.append(1)
    else:
        _append_varlong(out, len(content))
        out += content
