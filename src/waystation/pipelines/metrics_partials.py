"""Figures of windows on their way from the tasks of ``metrics`` to its driver, as rows.

A file of its own: what tasks run must be importable by its name also where the job's own file is
the program, as under ``spark-submit``.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from waystation.pipelines.metrics_windows import Asked, Figures, summarised

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PARTIAL", "figures_of", "partials"]

PARTIAL = (
    "window long, topic string, messages long, bytes long, late long, newest long, age_max long, "
    "ages array<struct<bucket:int,messages:long>>, keys array<struct<key:string,messages:long>>"
)


def partials(batches: Iterator["pa.RecordBatch"], asked: Asked) -> Iterator["pa.RecordBatch"]:
    """What one task found, as rows of ``PARTIAL``."""
    import pyarrow as pa

    counted = [("messages", pa.int64())]
    schema = pa.schema(
        [
            ("window", pa.int64()),
            ("topic", pa.string()),
            *((name, pa.int64()) for name in ("messages", "bytes", "late", "newest", "age_max")),
            ("ages", pa.list_(pa.struct([("bucket", pa.int32()), *counted]))),
            ("keys", pa.list_(pa.struct([("key", pa.string()), *counted]))),
        ]
    )
    rows: list[dict[str, Any]] = []
    for (window, topic), figures in summarised(batches, asked):
        rows.append(
            {
                "window": window,
                "topic": topic,
                "messages": figures.messages,
                "bytes": figures.payload_bytes,
                "late": figures.late,
                "newest": figures.newest_ms,
                "age_max": figures.age_max_ms,
                "ages": [{"bucket": one, "messages": n} for one, n in figures.ages.items()],
                "keys": [{"key": one, "messages": n} for one, n in figures.keys.items()],
            }
        )
        if len(rows) == 1_000:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def figures_of(row: Mapping[str, Any]) -> Figures:
    """What ``partials`` made a row of."""
    return Figures(
        messages=row["messages"],
        payload_bytes=row["bytes"],
        late=row["late"],
        newest_ms=row["newest"],
        age_max_ms=row["age_max"],
        ages={one["bucket"]: one["messages"] for one in row["ages"]},
        keys={one["key"]: one["messages"] for one in row["keys"]},
    )
