"""The same ratios as a picture: one bar per row and metric, the spread as a whisker."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.report.ratios import Comparison
from benchmarks.report.requirements import required
from benchmarks.report.table import UNITS

_PASS, _SHORT, _FREE = "#2a7f62", "#c0392b", "#7f8c8d"


def draw(comparisons: Iterable[Comparison], path: Path, title: str) -> bool:
    """Write a PNG; false when there is no ratio to draw or matplotlib is not installed."""
    shown = [c for c in comparisons if c.metric in UNITS and c.ratio is not None]
    if not shown:
        return False
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 1.5 + 0.26 * len(shown)), layout="constrained")
    for place, comparison in enumerate(shown):
        _bar(axes, place, comparison)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(shown)), [f"{c.row}: {UNITS[c.metric]}" for c in shown], fontsize=7)
    axes.set_ylim(len(shown) - 0.4, -0.6)  # the first row on top
    axes.set_xlabel("Waystation / Kafka, log scale (green: requirement met, red: not, grey: none)")
    axes.set_title(title, fontsize=10)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return True


def _bar(axes: object, place: int, comparison: Comparison) -> None:
    ratio, spread = comparison.ratio, comparison.spread
    assert ratio is not None, "only comparisons with a ratio are drawn"
    assert spread is not None, "a ratio has a spread"
    verdicts = {requirement.met_by(comparison) for requirement in required(comparison)}
    colour = _SHORT if False in verdicts else _PASS if True in verdicts else _FREE
    axes.barh(place, ratio - 1, left=1, color=colour, height=0.6)  # type: ignore[attr-defined]
    axes.plot(spread, (place, place), color="black", linewidth=1)  # type: ignore[attr-defined]
