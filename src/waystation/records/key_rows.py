"""The records of one key in a batch, without making objects of all the others.

A search by key (``storage/key_index.py``) looks into whole batches for one message.  What holds:
``rows_of_key`` gives what ``rows_of`` would, of which those with the key are kept.
"""

from array import array
from bisect import bisect_left
from typing import Final

from waystation.records import codec
from waystation.records.batch import payload_of, rows_of
from waystation.records.header import BatchHeader, TimestampType
from waystation.records.record import Row

__all__ = ["rows_of_key"]

_FEW: Final = 8
_START, _STOP, _KEY_AT, _KEY_BYTES = 0, 1, 6, 7


def rows_of_key(batch: bytes, header: BatchHeader, key: bytes) -> list[Row]:
    """The rows of a checked batch that have ``key``, in order.

    HOT: once per batch that a search looks into: of 10,000 records 1 ms, of 100 9 µs, where all
    rows of them take 5 ms and 22 µs.
    """
    if header.records_count <= _FEW or not key:
        return [row for row in rows_of(batch) if row[2] == key]
    payload = bytes(payload_of(batch, 0, header))
    at = payload.find(key)
    if at < 0:
        return []
    places = array("q", bytes(8 * codec.PLACE_FIELDS * header.records_count))
    base, last = header.base_offset, header.last_offset_delta
    codec.locate_records(payload, header.records_count, base, last, header.base_timestamp, places)
    begins = places[_KEY_AT :: codec.PLACE_FIELDS]
    appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    dated = header.max_timestamp if appended else None
    rows: list[Row] = []
    number = bisect_left(begins, at)
    while number < len(begins):
        # From key to key: a value may hold the same bytes a million times.
        at = payload.find(key, begins[number])
        if at < 0:
            break
        number = bisect_left(begins, at, number)
        where = number * codec.PLACE_FIELDS
        if number < len(begins) and begins[number] == at:
            if places[where + _KEY_BYTES] == len(key):
                one = payload[places[where + _START] : places[where + _STOP]]
                rows += codec.decode_records(one, 1, base, last, header.base_timestamp, dated)
            number += 1
    return rows
