"""What a row of columns costs until it is in a batch, compiled and in plain Python.

    python -m benchmarks.records.packing

Rows come in Arrow batches of 10,000, as Spark hands them over, for a topic of four partitions.
"""

from __future__ import annotations

import os
import time
from random import Random

import pyarrow as pa
from tests.records.twins import NAMES, PACKING_TWINS

from waystation.records import packed
from waystation.spark import encode
from waystation.spark.encode import Encoder, TopicFacts

_ROWS = 10_000
_PARTITIONS = 4
_CPU_S = 1.0


def frame(value_bytes: int, *, keys: bool, headers: bool) -> pa.RecordBatch:
    """Rows with random values, and what else is asked for."""
    chance = Random(1)
    columns = {"value": pa.array([os.urandom(value_bytes) for _ in range(_ROWS)])}
    if keys:
        columns["key"] = pa.array([b"%d" % chance.randrange(10_000) for _ in range(_ROWS)])
    if headers:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        columns["headers"] = pa.array([[("from", b"here")]] * _ROWS, kind)
    return pa.record_batch(columns)


def nanoseconds(rows: pa.RecordBatch) -> float:
    """CPU time per row, headers of batches and checksums included."""
    facts = TopicFacts("t", _PARTITIONS, range(_PARTITIONS), 1_048_588)
    encoder = Encoder(lambda _: facts, topic="t")
    for ready in encoder.add(rows):
        ready.batch.build()
    before, began = encoder.rows, time.process_time()
    while time.process_time() - began < _CPU_S:
        for ready in encoder.add(rows):
            ready.batch.build()
    return (time.process_time() - began) / (encoder.rows - before) * 1e9


def main() -> None:
    """Print one line per case and twin."""
    for name, twin in zip(NAMES, PACKING_TWINS, strict=True):
        for place in (encode, packed):
            for used in ("ByteRows", "HeaderRows", "NumberRows", "Rows", "lanes_of", "in_lanes"):
                if hasattr(place, used):
                    setattr(place, used, getattr(twin, used))
        if name == "pure":

            class Batch(twin.RowWriter):  # type: ignore[name-defined,misc]
                """As ``PackedBatch``, over the pure twin; nothing is built."""

                def build(self) -> None:
                    """Left out: the header is the same work in both."""

            encode.PackedBatch = Batch  # type: ignore[misc,assignment]
        for label, value_bytes, keys, headers in (
            ("100 B", 100, False, False),
            ("100 B, key", 100, True, False),
            ("100 B, key, header", 100, True, True),
            ("1 KB", 1_024, False, False),
            ("1 KB, key", 1_024, True, False),
        ):
            cost = nanoseconds(frame(value_bytes, keys=keys, headers=headers))
            print(f"{name:>9} {label:<20} {cost:9,.0f} ns, {1e9 / cost:12,.0f} rows/s")


if __name__ == "__main__":
    main()
