# cython: annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Columns of what a filter asks for, picked out of located records.

``places`` are those of ``codec.locate_records`` and ``locate_batches``, ``rows`` the numbers of the
records that are still of interest; every column has one entry per row.  What holds:

1. only what is asked for becomes an object; of a record's headers, one;
2. a text is UTF-8 or ``None``; of headers with one name the last counts;
3. nothing is read outside ``text``, whatever ``places`` say;
4. both twins answer alike: ``picking.pxd`` gives the C types, as ``records/codec.pxd`` does.
"""

from array import array
from collections.abc import Sequence

from waystation.records.codec import BATCH_FIELDS, PLACE_FIELDS

__all__ = [
    "COMPILED",
    "bring_forward",
    "contents",
    "date",
    "date_batches",
    "have_headers",
    "have_keys",
    "have_values",
    "headers",
    "holding",
    "keys",
    "offsets",
    "times",
    "values",
]

COMPILED = not __file__.endswith(".py")

_FIELDS = PLACE_FIELDS
_BATCH_FIELDS = BATCH_FIELDS
# In the header of a batch: the lower byte of its attributes, the time that others count from.
_ATTRIBUTES_AT = 22
_BASE_TIMESTAMP_AT = 27
_LOG_APPEND_TIME = 0x08
_ESCAPE = b"\\"
_STOP = 1
_OFFSET, _TIMESTAMP, _KEY_AT, _KEY_BYTES, _VALUE_BYTES = range(4, PLACE_FIELDS)


def date(places: "array[int]", first: int, stop: int, base: int, append_time: int) -> None:
    """Make the timestamps of the records ``[first, stop)`` absolute.

    They count from ``base``, unless the broker's clock dated them: then ``append_time`` is not
    negative, and is that of all of them.
    """
    if not 0 <= first <= stop <= len(places) // _FIELDS:
        raise IndexError(f"no places of records [{first}, {stop})")
    for row in range(first, stop):
        at = row * _FIELDS + _TIMESTAMP
        places[at] = append_time if append_time >= 0 else base + places[at]


def date_batches(text: bytes, places: "array[int]", batches: "array[int]", found: int) -> None:
    """The same of all records of the batches that ``codec.locate_batches`` has found."""
    end = len(text)
    if not 0 <= found <= len(batches) // _BATCH_FIELDS:
        raise IndexError(f"no rows of {found} batches")
    for number in range(found):
        row = number * _BATCH_FIELDS
        at = batches[row]
        if not 0 <= at <= end - _BASE_TIMESTAMP_AT - 8:
            raise IndexError("a batch outside the window")
        appended = -1
        if _byte(text, at + _ATTRIBUTES_AT) & _LOG_APPEND_TIME:
            appended = batches[row + 6]
        base = _signed(text, at + _BASE_TIMESTAMP_AT)
        date(places, batches[row + 3], batches[row + 3] + batches[row + 4], base, appended)


def offsets(places: "array[int]", rows: Sequence[int]) -> list[int]:
    """Offsets."""
    found: list[int] = []
    _check(places, rows)
    for row in rows:
        found.append(places[row * _FIELDS + _OFFSET])  # noqa: PERF401 - a loop has C types
    return found


def times(places: "array[int]", rows: Sequence[int]) -> list[int | None]:
    """Timestamps; -1 says that there is none."""
    found: list[int | None] = []
    _check(places, rows)
    for row in rows:
        number = places[row * _FIELDS + _TIMESTAMP]
        found.append(None if number == -1 else number)
    return found


def have_keys(places: "array[int]", rows: Sequence[int]) -> list[bool]:
    """Whether there are keys, be they texts or not."""
    found: list[bool] = []
    _check(places, rows)
    for row in rows:
        found.append(places[row * _FIELDS + _KEY_BYTES] >= 0)  # noqa: PERF401
    return found


def have_values(places: "array[int]", rows: Sequence[int]) -> list[bool]:
    """Whether the records are no tombstones."""
    found: list[bool] = []
    _check(places, rows)
    for row in rows:
        found.append(places[row * _FIELDS + _VALUE_BYTES] >= 0)  # noqa: PERF401
    return found


def keys(text: bytes, places: "array[int]", rows: Sequence[int]) -> list[str | None]:
    """The keys that are texts.

    HOT: for every record where a filter asks for keys: 50 ns compiled (benchmarks/filters.py).
    """
    end = len(text)
    _check(places, rows)
    found: list[str | None] = []
    for row in rows:
        at = row * _FIELDS
        found.append(_text(text, end, places[at + _KEY_AT], places[at + _KEY_BYTES]))
    return found


def values(text: bytes, places: "array[int]", rows: Sequence[int]) -> list[str | None]:
    """The values that are texts."""
    end = len(text)
    _check(places, rows)
    found: list[str | None] = []
    for row in rows:
        at = row * _FIELDS
        found.append(_text(text, end, _value_at(text, end, places, at), places[at + _VALUE_BYTES]))
    return found


def contents(text: bytes, places: "array[int]", rows: Sequence[int]) -> list[bytes | None]:
    """The values as they are."""
    end = len(text)
    _check(places, rows)
    found: list[bytes | None] = []
    for row in rows:
        at = row * _FIELDS
        size = places[at + _VALUE_BYTES]
        start = _value_at(text, end, places, at)
        if size < 0:
            found.append(None)
        else:
            _check_range(end, start, size)
            found.append(text[start : start + size])
    return found


def headers(
    text: bytes, places: "array[int]", rows: Sequence[int], name: bytes
) -> list[str | None]:
    """The headers of one name that are texts.

    HOT: for every record where a filter asks for a header: 60 ns compiled, and 10 ns for each
    header that has another name (benchmarks/filters.py).
    """
    end = len(text)
    wanted = len(name)
    _check(places, rows)
    found: list[str | None] = []
    for row in rows:
        start, size = _header(text, end, places, row * _FIELDS, name, wanted)
        found.append(_text(text, end, start, size))
    return found


def have_headers(text: bytes, places: "array[int]", rows: Sequence[int], name: bytes) -> list[bool]:
    """Whether there is a header of that name with a value, be it a text or not."""
    end = len(text)
    wanted = len(name)
    _check(places, rows)
    found: list[bool] = []
    for row in rows:
        _, size = _header(text, end, places, row * _FIELDS, name, wanted)
        found.append(size >= 0)
    return found


def holding(text: bytes, places: "array[int]", rows: Sequence[int], needle: bytes) -> list[int]:
    """The rows, which rise, in whose values ``needle`` occurs, or could in another spelling.

    HOT: for every record where a filter compares a field of a document with a text.  What occurs
    rarely is looked for in many records at once (benchmarks/filters.py).
    """
    _check(places, rows)
    found: list[int] = []
    end = len(text)
    size = len(needle)
    here = -1
    there = -1
    for row in rows:
        at = row * _FIELDS
        start = _value_at(text, end, places, at)
        stop = start + places[at + _VALUE_BYTES]
        if here < start:
            here = text.find(needle, start)
            if here < 0:
                here = end
        if there < start:
            there = text.find(_ESCAPE, start)
            if there < 0:
                there = end
        if here + size <= stop or there < stop:
            found.append(row)
    return found


def bring_forward(places: "array[int]", rows: Sequence[int], to: int) -> int:
    """Move the places of ``rows``, which rise, to ``to`` and behind; the latest of their times."""
    _check(places, rows)
    latest = 0
    first = True
    for row in rows:
        if row < to:
            raise IndexError(f"row {row} is moved to {to}")
        at = row * _FIELDS
        if first or places[at + _TIMESTAMP] > latest:
            latest = places[at + _TIMESTAMP]
            first = False
        if row != to:
            for field in range(_FIELDS):
                places[to * _FIELDS + field] = places[at + field]
        to += 1
    return latest


def _byte(text: bytes, at: int) -> int:
    return text[at]


def _signed(text: bytes, at: int) -> int:
    """The number of 8 bytes at ``at``, the most significant first."""
    value = _byte(text, at)
    if value >= 0x80:
        value -= 0x100
    for place in range(1, 8):
        value = value * 0x100 + _byte(text, at + place)
    return value


def _check(places: "array[int]", rows: Sequence[int]) -> None:
    """Rows that have no places would be read outside them."""
    most = len(places) // _FIELDS
    for row in rows:
        if not 0 <= row < most:
            raise IndexError(f"no place of record {row}")


def _check_range(end: int, at: int, size: int) -> None:
    if at < 0 or size < 0 or at > end - size:
        raise IndexError("a part of a record outside the payload")


def _text(text: bytes, end: int, at: int, size: int) -> str | None:
    """What is there, if it is UTF-8; a size below zero is null."""
    if size < 0:
        return None
    _check_range(end, at, size)
    try:
        return text[at : at + size].decode("utf-8")
    except UnicodeDecodeError:
        return None


def _value_at(text: bytes, end: int, places: "array[int]", place: int) -> int:
    """Where a value begins: behind the key and the length of the value."""
    at = places[place + _KEY_AT]
    if places[place + _KEY_BYTES] > 0:
        at += places[place + _KEY_BYTES]
    while 0 <= at < end and text[at] >= 0x80:
        at += 1
    return at + 1


def _header(
    text: bytes, end: int, places: "array[int]", place: int, name: bytes, wanted: int
) -> tuple[int, int]:
    """Where the value of the last header of that name lies, and its size; -1 if there is none."""
    at = _value_at(text, end, places, place)
    if places[place + _VALUE_BYTES] > 0:
        at += places[place + _VALUE_BYTES]
    stop = places[place + _STOP]
    if stop > end:
        stop = end
    start = 0
    size = -1
    count, at = _number(text, at, stop)
    for _ in range(count):
        length, at = _number(text, at, stop)
        if at < 0 or length < 0 or length > stop - at:
            raise IndexError("a header outside its record")
        is_it = length == wanted and _same(text, at, name, wanted)
        length, at = _number(text, at + length, stop)
        if at < 0 or length > stop - at:
            raise IndexError("a header outside its record")
        if is_it:
            start = at
            size = length
        if length > 0:
            at += length
    return start, size


def _same(text: bytes, at: int, name: bytes, size: int) -> bool:
    """Whether ``name`` lies at ``at``, where there is room for it."""
    for index in range(size):  # noqa: SIM110 - a loop has C types
        if text[at + index] != name[index]:
            return False
    return True


def _number(text: bytes, at: int, stop: int) -> tuple[int, int]:
    """The number of at most 32 bits at ``at`` and the position past it; -1 where it has no end."""
    raw = 0
    shift = 0
    while 0 <= at < stop and shift < 35:
        byte = text[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    return 0, -1
