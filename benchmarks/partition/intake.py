"""What the checks of a produced batch cost: ``python benchmarks/partition/intake.py``.

Microseconds per batch of 64 KB before compression, with and without a look at its records.
"""

from __future__ import annotations

import os
import sys
from timeit import Timer

from waystation.model.offsets import Millis
from waystation.model.topics import TopicSettings
from waystation.partition.intake import Intake
from waystation.records.batch import BatchBuilder, check_contents
from waystation.records.codec import COMPILED
from waystation.records.compression import Codec
from waystation.records.header import check_produced

NOW = Millis(1_700_000_000_000)
BATCH_BYTES = 64 << 10


def batch(record_bytes: int, codec: Codec) -> memoryview:
    builder = BatchBuilder(codec, limit_bytes=BATCH_BYTES)
    text = b"the quick brown fox jumps over the lazy dog " * (record_bytes // 44 + 1)
    while True:
        value = os.urandom(record_bytes // 4) + text[: record_bytes - record_bytes // 4]
        if not builder.append(None, value, (), timestamp=NOW):
            return memoryview(bytearray(builder.build()))


def microseconds(timer: Timer) -> float:
    count, _ = timer.autorange()
    return min(timer.repeat(5, max(1, count // 5))) / max(1, count // 5) * 1e6


def main() -> None:
    intake = Intake(TopicSettings())
    print(f"records codec compiled: {COMPILED}")
    print(
        f"{'records':>10} {'codec':>6} {'batch':>7} {'header':>8} {'contents':>9} {'admit':>8}  us"
    )
    for record_bytes in (100, 1_000):
        for codec in (Codec.NONE, Codec.LZ4, Codec.SNAPPY, Codec.ZSTD, Codec.GZIP):
            data = batch(record_bytes, codec)
            header = check_produced(data)
            costs = [
                microseconds(Timer(lambda data=data: check_produced(data))),
                microseconds(Timer(lambda data=data, header=header: check_contents(data, header))),
                microseconds(Timer(lambda data=data: intake.admit(data, NOW))),
            ]
            row = "".join(f"{cost:>9.1f}" for cost in costs)
            print(f"{record_bytes:>8} B {codec.name:>6} {len(data):>7}{row}")


if __name__ == "__main__":
    sys.exit(main())
