"""What a batch header costs: ``python benchmarks/records/header.py``.

Prints nanoseconds and, beside them, ratios within the same run; trust the ratios.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from timeit import Timer

from crc32c import crc32c

from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder
from waystation.records.header import HEADER, BatchHeader, check, check_produced, peek, stamp

READERS = [Struct(">" + letter) for letter in "qiibIhiqqqhii"]


@dataclass(frozen=True)
class FrozenHeader:
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int


def best_ns(work: Callable[[], object]) -> float:
    """The fastest of several rounds, which the rest of the machine disturbed least."""
    timer = Timer(work)
    number = max(timer.autorange()[0] // 10, 1)
    return min(timer.repeat(7, number)) / number * 1e9


def batch_of(size_bytes: int) -> bytearray:
    builder = BatchBuilder(limit_bytes=1 << 22)
    builder.append(None, bytes(size_bytes - 80), timestamp=Millis(1))
    return bytearray(builder.build())


def field_by_field(view: memoryview) -> list[int]:
    """The plain reader: one call, one slice and one conversion per field."""
    fields, at = [], 0
    for reader in READERS:
        fields.append(reader.unpack(view[at : at + reader.size])[0])
        at += reader.size
    return fields


def compare(rows: list[tuple[str, float]]) -> None:
    first = rows[0][1]
    for name, cost in rows:
        print(f"  {name:<44}{cost:>10.0f} ns{cost / first:>8.1f}x")


def main() -> None:
    view = memoryview(batch_of(1000))
    fields = HEADER.unpack_from(view)
    print(f"Python {sys.version.split()[0]}")
    print("reading the 13 fields")
    compare(
        [
            ("one Struct", best_ns(lambda: HEADER.unpack_from(view, 0))),
            ("a reader per field", best_ns(lambda: field_by_field(view))),
        ]
    )
    print("naming them")
    compare(
        [
            ("tuple.__new__", best_ns(lambda: tuple.__new__(BatchHeader, fields))),
            ("NamedTuple._make", best_ns(lambda: BatchHeader._make(fields))),
            ("NamedTuple(...)", best_ns(lambda: BatchHeader(*fields))),
            ("frozen dataclass", best_ns(lambda: FrozenHeader(*fields))),
        ]
    )
    print("per batch of 1 KB")
    compare(
        [
            ("peek", best_ns(lambda: peek(view))),
            ("check", best_ns(lambda: check(view))),
            ("check_produced", best_ns(lambda: check_produced(view))),
            ("stamp", best_ns(lambda: stamp(view, 0, Offset(7), LeaderEpoch(1)))),
        ]
    )
    for size_bytes in (1 << 10, 1 << 14, 1 << 16, 1 << 20):
        print(f"per batch of {size_bytes >> 10} KB")
        compare_sizes(memoryview(batch_of(size_bytes)))


def compare_sizes(view: memoryview) -> None:
    compare(
        [
            ("CRC-32C alone", best_ns(lambda: crc32c(view[21:]))),
            ("check", best_ns(lambda: check(view))),
            ("a copy of the batch, which check avoids", best_ns(lambda: bytes(view))),
        ]
    )


if __name__ == "__main__":
    main()
