"""Reads one span of a partition in an executor, as Arrow batches."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from waystation.spark.spans import Span

__all__ = ["ReadPlan", "read_span"]


class ReadPlan(NamedTuple):
    """What every task of a read has in common; it travels to the executors."""

    bootstrap: str
    columns: tuple[str, ...]
    isolation: str
    fail_on_data_loss: bool
    client: Mapping[str, str]


def read_span(plan: ReadPlan, span: Span) -> Iterator[pa.RecordBatch]:
    """What the span holds, in the order of its offsets."""
    raise NotImplementedError
