"""Many runs become one figure: percentiles, medians, and ratios of neighbours.

A ratio is taken within a pair of neighbouring runs, ours over theirs, and only then the median
over the pairs: what slows the whole machine for a minute slows both sides of a pair alike.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Rows = Mapping[str, Mapping[str, float]]  # row -> metric -> value, of one run
Run = Mapping[str, Rows]  # peer -> rows, of one pair


def percentile(values: Iterable[float], quantile: float) -> float:
    """The nearest-rank percentile: always a value that was measured."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    rank = math.ceil(quantile * len(ordered))
    return ordered[max(rank, 1) - 1]


@dataclass(frozen=True)
class Comparison:
    """One metric of one row over all pairs; a side that was not measured has no values."""

    row: str
    metric: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    ratios: tuple[float, ...]

    @property
    def our_median(self) -> float | None:
        """The median of our runs."""
        return statistics.median(self.ours) if self.ours else None

    @property
    def their_median(self) -> float | None:
        """The median of the peer's runs."""
        return statistics.median(self.theirs) if self.theirs else None

    @property
    def ratio(self) -> float | None:
        """The median of the ratios within pairs, ours over theirs."""
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The lowest and the highest ratio of all pairs."""
        return (min(self.ratios), max(self.ratios)) if self.ratios else None


def compare(pairs: Sequence[Run], ours: str, theirs: str) -> list[Comparison]:
    """Every metric of every row, in the order in which they were first measured."""
    seen: dict[tuple[str, str], None] = {}
    for pair in pairs:
        for rows in pair.values():
            seen.update({(row, metric): None for row, ms in rows.items() for metric in ms})
    return [_comparison(pairs, row, metric, ours, theirs) for row, metric in seen]


def _comparison(pairs: Sequence[Run], row: str, metric: str, ours: str, theirs: str) -> Comparison:
    def value(pair: Run, peer: str) -> float | None:
        return pair.get(peer, {}).get(row, {}).get(metric)

    sides = [(value(pair, ours), value(pair, theirs)) for pair in pairs]
    return Comparison(
        row,
        metric,
        ours=tuple(our for our, _ in sides if our is not None),
        theirs=tuple(their for _, their in sides if their is not None),
        ratios=tuple(our / their for our, their in sides if our is not None and their),
    )
