"""What a record costs, compiled and pure, beside aiokafka: ``python benchmarks/records/codec.py``.

Prints nanoseconds per record and ratios to the compiled twin; trust the ratios.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from itertools import repeat, starmap
from pathlib import Path
from timeit import Timer
from types import ModuleType
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from waystation.records import codec as preferred
from waystation.records.batch import BatchBuilder, records_of, rows_of
from waystation.records.compression import Codec, compress, decompress
from waystation.records.header import HEADER_BYTES
from waystation.records.record import Record

BATCH_BYTES = 64 << 10
NO_LIMIT = 1 << 40
KEY = b"key-0001"


def pure_twin() -> ModuleType:
    """The same source, loaded past the extension that Python prefers."""
    source = Path(preferred.__file__).parent / "codec.py"
    loader = SourceFileLoader("pure_codec", str(source))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def best_ns(work: Callable[[], object], records: int = 1) -> float:
    """Nanoseconds per record in the fastest of several rounds."""
    timer = Timer(work)
    number = max(timer.autorange()[0] // 8, 1)
    return min(timer.repeat(5, number)) / number / records * 1e9


def encode(codec: ModuleType, records: int, value: bytes) -> bytearray:
    writer = codec.RecordWriter(bytearray(), NO_LIMIT)
    append = writer.append
    for index in range(records):
        append(KEY, value, timestamp=1000 + index)
    out: bytearray = writer.out
    return out


def build(records: int, value: bytes) -> bytes:
    builder = BatchBuilder(limit_bytes=NO_LIMIT)
    append = builder.append
    for index in range(records):
        append(KEY, value, timestamp=1000 + index)
    return builder.build()


def build_by_aiokafka(records: int, value: bytes) -> Any:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    append = builder.append
    for index in range(records):
        append(index, 1000 + index, KEY, value, [])
    return builder.build()


def compare(title: str, rows: list[tuple[str, float]]) -> None:
    print(title)
    for name, cost in rows:
        print(f"  {name:<40}{cost:>9.1f} ns{cost / rows[0][1]:>8.1f}x{1e3 / cost:>9.2f}M/s")


def measure(twins: list[tuple[str, ModuleType]], value_bytes: int) -> None:
    records, value = BATCH_BYTES // value_bytes, bytes(value_bytes)
    batch = build(records, value)
    payload, last = memoryview(batch)[HEADER_BYTES:], records - 1
    rows = rows_of(batch)

    def each(work: Callable[[], object]) -> float:
        return best_ns(work, records)

    print(f"--- {records} records of {value_bytes} B, per record")
    compare(
        "check_records",
        [(n, each(partial(t.check_records, payload, records, last, 0))) for n, t in twins],
    )
    compare(
        "decode to tuples",
        [(n, each(partial(t.decode_records, payload, records, 0, last, 0, None))) for n, t in twins]
        + [("aiokafka, to its records", each(lambda: list(DefaultRecordBatch(batch))))],
    )
    compare(
        "RecordWriter.append", [(n, each(partial(encode, t, records, value))) for n, t in twins]
    )
    compare(
        "a whole batch built",
        [
            ("BatchBuilder", each(lambda: build(records, value))),
            ("aiokafka", each(lambda: build_by_aiokafka(records, value))),
        ],
    )
    compare(
        "naming the fields of a decoded record",
        [
            ("rows_of, which does not", each(lambda: rows_of(batch))),
            ("records_of", each(lambda: records_of(batch))),
            ("tuple.__new__ alone", each(lambda: list(map(tuple.__new__, repeat(Record), rows)))),
            ("Record._make alone", each(lambda: list(map(Record._make, rows)))),
            ("Record(...) alone", each(lambda: list(starmap(Record, rows)))),
        ],
    )


def measure_codecs() -> None:
    text = b"".join(b'{"id": %d, "kind": "order", "amount": %d}\n' % (i, i * 7) for i in range(400))
    print(f"--- compression of {len(text) >> 10} KB of JSON lines")
    for codec in Codec:
        packed = compress(codec, text)
        write = best_ns(partial(compress, codec, text)) / 1e3
        read = best_ns(partial(decompress, codec, packed, 1 << 26)) / 1e3
        print(f"  {codec.name:<8}{len(packed):>8} B  write {write:>7.1f} µs  read {read:>7.1f} µs")


def main() -> None:
    twins = [("compiled", preferred)] if preferred.COMPILED else []
    twins.append(("pure", pure_twin()))
    kind = "compiled" if preferred.COMPILED else "NOT compiled"
    print(f"Python {sys.version.split()[0]}; the codec is {kind}")
    for value_bytes in (100, 1000):
        measure(twins, value_bytes)
    measure_codecs()


if __name__ == "__main__":
    main()
