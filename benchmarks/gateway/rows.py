"""Figures of the gateway, and what they must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.report.table import align


class Row(NamedTuple):
    """One figure; without bounds it is for information."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    below: float | None = None

    @property
    def reached(self) -> bool:
        """Whether it is what it must be."""
        enough = self.at_least is None or self.value >= self.at_least
        return enough and (self.below is None or self.value < self.below)

    @property
    def required(self) -> str:
        """As it stands in the table."""
        if self.at_least is not None:
            return f"at least {self.at_least:,g}"
        return "" if self.below is None else f"less than {self.below:,g}"

    @property
    def verdict(self) -> str:
        """The same in a word."""
        return ("yes" if self.reached else "NO") if self.required else ""


def render(rows: Sequence[Row]) -> str:
    """All rows as a table."""
    header = ("figure", "value", "unit", "required", "reached")
    told = [(row.name, _number(row.value), row.unit, row.required, row.verdict) for row in rows]
    return align([header, *told])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
