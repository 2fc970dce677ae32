"""What a record costs on its way into Arrow's columns: ``python -m benchmarks.records.columns``.

Prints nanoseconds per record, compiled and pure, beside decoding to tuples; trust the ratios.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from timeit import Timer
from types import ModuleType

from waystation.records import columns as preferred
from waystation.records.batch import BatchBuilder, payload_of, rows_of
from waystation.records.header import peek
from waystation.spark.columns import COLUMNS

NO_LIMIT = 1 << 40
BATCH_BYTES = 1_000_000


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


def filled(twin: ModuleType, batch: bytes, wanted: tuple[str, ...], rounds: int) -> object:
    """One Arrow batch of ``rounds`` batches."""
    header = peek(batch)
    columns = twin.RecordColumns(wanted, target_bytes=NO_LIMIT, target_rows=NO_LIMIT)
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


def together(twin: ModuleType, window: memoryview) -> object:
    """All columns of all batches, without looking at each."""
    columns = twin.RecordColumns(COLUMNS.names, target_bytes=NO_LIMIT, target_rows=NO_LIMIT)
    at = 0
    while at < len(window):
        after = columns.begin_plain(window, at, 0, NO_LIMIT)
        columns.fill()
        if after == at:
            break
        at = after
    return columns.take()


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
        for wanted in (tuple(COLUMNS.names), ("value",), ("offset",)):
            cost = best_ns(lambda t=twin, w=wanted: filled(t, batch, w, rounds), records)  # type: ignore[misc]
            chosen = "all columns" if len(wanted) > 1 else wanted[0]
            print(f"  {name:10}{chosen:14}{cost:10.1f} ns{1e3 / cost:10.2f}M/s")
    window = memoryview(batch * rounds)
    for name, twin in [*twins, ("pure", pure_twin())]:
        cost = best_ns(lambda t=twin: together(t, window), records)  # type: ignore[misc]
        print(f"  {name:10}{'begin_plain':14}{cost:10.1f} ns{1e3 / cost:10.2f}M/s")
    cost = best_ns(lambda: [rows_of(batch) for _ in range(rounds)], records)
    print(f"  {'rows_of':10}{'tuples':14}{cost:10.1f} ns{1e3 / cost:10.2f}M/s")


def main() -> None:
    for value_bytes in (100, 1_000):
        for batch_bytes in (1_000_000, 16 << 10):
            measure(value_bytes, batch_bytes)


if __name__ == "__main__":
    main()
