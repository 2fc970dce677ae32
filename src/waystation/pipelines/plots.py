"""Plots as SVG text that stands inside an HTML page: no files beside it, no scripts.

Text stays text, so a reader can search and copy it; colours come from the page, so a plot fits
a dark page as well as a light one.  The same figures give the same bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from io import StringIO
from typing import Any

__all__ = ["Series", "bars", "lines"]

Series = tuple[Sequence[datetime], Sequence[float]]
"""Times and the value at each."""

_SIZE_INCHES = (9.0, 2.8)
_COLOURS = ("#3b7dd8", "#e07b39", "#3f9c5a", "#b4559d", "#8a7d2f", "#cc4b4b", "#4aa3a8", "#777777")


def lines(
    title: str,
    series: Mapping[str, Series],
    *,
    shown: Callable[[float], str] = "{:g}".format,
    limit: float | None = None,
) -> str:
    """One line per name over time; ``limit`` draws a dashed line to stay below."""
    figure, axes = _axes(title, shown)
    for index, (name, (times, values)) in enumerate(series.items()):
        marker = "o" if len(times) < 3 else None
        axes.plot(
            times, values, label=name, color=_colour(index), linewidth=1.6, marker=marker, ms=4
        )
    if limit is not None:
        axes.axhline(limit, color="#cc4b4b", linestyle="--", linewidth=1.2)
    axes.set_ylim(bottom=0)
    _date_axis(axes)
    if series:
        _legend(axes, len(series))
    return _svg(figure, title)


def bars(
    title: str,
    groups: Mapping[str, Sequence[float]],
    labels: Sequence[str],
    *,
    shown: Callable[[float], str] = "{:g}".format,
) -> str:
    """A stack per label: each name's share, the first at the bottom."""
    figure, axes = _axes(title, shown)
    below = [0.0] * len(labels)
    for index, (name, values) in enumerate(groups.items()):
        axes.bar(range(len(labels)), values, bottom=below, label=name, color=_colour(index))
        below = [one + more for one, more in zip(below, values, strict=True)]
    every = max(1, len(labels) // 12)
    axes.set_xticks(range(0, len(labels), every), labels[::every])
    if groups:
        _legend(axes, len(groups))
    return _svg(figure, title)


def _axes(title: str, shown: Callable[[float], str]) -> tuple[Any, Any]:
    # The figure itself, not pyplot: nothing global, so a job's thread may draw too.
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=11)
    axes.yaxis.set_major_formatter(lambda value, _: shown(value))
    axes.grid(axis="y", alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _date_axis(axes: Any) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    shown = ConciseDateFormatter(locator, show_offset=False)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(shown)


def _legend(axes: Any, entries: int) -> None:
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        frameon=False,
        fontsize=8 if entries <= 8 else 6,
    )


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def _svg(figure: Any, title: str) -> str:
    """The drawing without the document around it, in the page's own text colour."""
    from matplotlib import rc_context

    drawn = StringIO()
    # Ids are salted by the title: several drawings share one page and must not share ids.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(
            drawn, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    text = drawn.getvalue()
    text = text[text.index("<svg") :]
    for written in ("#000000", "black"):
        text = text.replace(f"stroke: {written}", "stroke: currentColor")
        text = text.replace(f"fill: {written}", "fill: currentColor")
    return text.replace("<svg ", '<svg role="img" fill="currentColor" ', 1)
