"""Medians, percentiles and ratios within pairs."""

from __future__ import annotations

import pytest
from benchmarks.report.ratios import compare, percentile
from hypothesis import given
from hypothesis import strategies as st

ROW, METRIC = "produce", "messages_per_s"


def pair(ours: float | None, theirs: float | None) -> dict[str, dict[str, dict[str, float]]]:
    sides = {"waystation": ours, "kafka": theirs}
    return {peer: {ROW: {METRIC: value}} for peer, value in sides.items() if value is not None}


@pytest.mark.parametrize(
    ("quantile", "expected"), [(0.5, 50), (0.99, 99), (0.999, 100), (1.0, 100), (0.0, 1)]
)
def test_percentile_is_the_nearest_rank(quantile: float, expected: int) -> None:
    assert percentile(range(100, 0, -1), quantile) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_percentile_is_always_a_measured_value(values: list[float], quantile: float) -> None:
    assert percentile(values, quantile) in values


def test_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_the_ratio_is_the_median_of_the_ratios_within_pairs() -> None:
    """A slow minute that hits both sides of one pair does not move the ratio."""
    (comparison,) = compare([pair(100, 100), pair(10, 10), pair(300, 100)], "waystation", "kafka")

    assert comparison.ratio == 1.0
    assert comparison.spread == (1.0, 3.0)
    assert comparison.our_median == 100
    assert comparison.their_median == 100


def test_a_side_that_was_not_measured_leaves_no_ratio() -> None:
    (comparison,) = compare([pair(100, None)], "waystation", "kafka")

    assert comparison.our_median == 100
    assert comparison.their_median is None
    assert comparison.ratio is None
    assert comparison.spread is None


def test_rows_keep_the_order_in_which_they_were_measured() -> None:
    first = {"kafka": {"b": {"x": 1.0}, "a": {"x": 1.0}}}
    second = {"kafka": {"c": {"x": 1.0}, "b": {"x": 1.0}}}

    rows = [comparison.row for comparison in compare([first, second], "waystation", "kafka")]

    assert rows == ["b", "a", "c"]
