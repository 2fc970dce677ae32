"""What a record costs on its way into Arrow's columns: ``python -m benchmarks.records.columns``.

Prints nanoseconds per record, compiled and pure, beside decoding to tuples; trust the ratios.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from timeit import Timer
from types import ModuleType
from typing import Any

from waystation.records import columns as preferred
from waystation.records.batch import BatchBuilder, payload_of, rows_of
from waystation.records.header import peek
from waystation.spark.columns import COLUMNS

NO_LIMIT = 1 << 40
BATCH_BYTES = 1_000_000
ALL = tuple(COLUMNS.names)


def pure_twin() -> ModuleType:
    """The same source, loaded past the extension that Python prefers."""
    source = Path(preferred.__file__).parent / "columns.py"
    loader = SourceFileLoader("pure_columns", str(source))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def best_ns(work: Callable[[], object], records: int) -> float:
    """Nanoseconds per record in the fastest of several rounds."""
    timer = Timer(work)
    number = max(timer.autorange()[0] // 8, 1)
    return min(timer.repeat(5, number)) / number / records * 1e9


def filled(columns: Any, batch: bytes, rounds: int) -> object:
    """One Arrow batch of ``rounds`` batches."""
    header = peek(batch)
    for _ in range(rounds):
        columns.begin(
            payload_of(batch, 0, header),
            header.records_count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            None,
            0,
            NO_LIMIT,
        )
        columns.fill()
    return columns.take()


def together(columns: Any, window: memoryview) -> object:
    """The same of plain batches, without looking at each; their checksums are verified too."""
    at = 0
    while at < len(window):
        at = columns.begin_plain(window, at, 0, NO_LIMIT)
        columns.fill()
    return columns.take()


def columns_of(twin: ModuleType, wanted: tuple[str, ...]) -> Any:
    """Columns that are never full; what they handed out they use again."""
    return twin.RecordColumns(wanted, target_bytes=NO_LIMIT, target_rows=NO_LIMIT)


def measure(value_bytes: int, batch_bytes: int) -> None:
    """One line per way."""
    builder = BatchBuilder(limit_bytes=batch_bytes)
    while builder.append(b"key-0001", bytes(value_bytes), timestamp=1_000):
        pass
    batch, rounds = builder.build(), BATCH_BYTES // batch_bytes
    records = builder.records_count * rounds
    print(f"--- {records} records of {value_bytes} B in {rounds} batches, per record")
    twins = [("compiled", preferred)] if preferred.COMPILED else []
    for name, twin in [*twins, ("pure", pure_twin())]:
        for wanted in (ALL, ("value",), ("offset",)):
            work = partial(filled, columns_of(twin, wanted), batch, rounds)
            cost = best_ns(work, records)
            chosen = "all columns" if len(wanted) > 1 else wanted[0]
            print(f"  {name:10}{chosen:14}{cost:10.1f} ns{1e3 / cost:10.2f}M/s")
        if rounds > 1:
            work = partial(together, columns_of(twin, ALL), memoryview(batch * rounds))
            cost = best_ns(work, records)
            print(f"  {name:10}{'all, together':14}{cost:10.1f} ns{1e3 / cost:10.2f}M/s")
    cost = best_ns(lambda: [rows_of(batch) for _ in range(rounds)], records)
    print(f"  {'rows_of':10}{'tuples':14}{cost:10.1f} ns{1e3 / cost:10.2f}M/s")


def main() -> None:
    for value_bytes in (100, 1_000):
        for batch_bytes in (1_000_000, 16 << 10, 2 << 10):
            measure(value_bytes, batch_bytes)


if __name__ == "__main__":
    main()
