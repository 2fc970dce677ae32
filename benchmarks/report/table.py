"""The table people read: one line per row and metric, aligned, with its requirement's verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.report.ratios import Comparison
from benchmarks.report.requirements import required

# Metrics shown, in this order; the JSON holds all of them.
UNITS = {
    "ready_ms": "ms to ready",
    "rss_mb": "MB resident",
    "peak_rss_mb": "MB peak",
    "messages_per_s": "msg/s",
    "cpu_ms_per_mb": "broker CPU ms/MB",
    "publish_p50_ms": "publish p50 ms",
    "publish_p99_ms": "publish p99 ms",
    "publish_p999_ms": "publish p99.9 ms",
    "end_to_end_p50_ms": "end-to-end p50 ms",
    "end_to_end_p99_ms": "end-to-end p99 ms",
    "end_to_end_p999_ms": "end-to-end p99.9 ms",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
}
_HEADER = ("row", "metric", "waystation", "kafka", "ratio", "spread", "required", "verdict")
_LEFT = {0, 1, 6, 7}


def render(comparisons: Iterable[Comparison]) -> str:
    """All shown metrics as text, ratios ours/theirs."""
    shown = [comparison for comparison in comparisons if comparison.metric in UNITS]
    return align([_HEADER, *(_cells(comparison) for comparison in shown)])


def summary(comparisons: Iterable[Comparison]) -> str:
    """How many requirements are met, and each that is not, by name."""
    verdicts = [
        (comparison, requirement, requirement.met_by(comparison))
        for comparison in comparisons
        for requirement in required(comparison)
    ]
    short = [(c, r) for c, r, met in verdicts if met is False]
    lines = [
        f"{sum(met is True for *_, met in verdicts)} requirements met, {len(short)} fall short, "
        f"{sum(met is None for *_, met in verdicts)} not measurable here"
    ]
    for comparison, requirement in short:
        value = comparison.ratio if requirement.of == "ratio" else comparison.our_median
        lines.append(
            f"  falls short: {comparison.row}, {UNITS[comparison.metric]}: "
            f"{number(value)}, required {requirement.text}"
        )
    return "\n".join(lines)


def align(rows: Sequence[Sequence[str]]) -> str:
    """Columns wide enough for their widest cell; words to the left, figures to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = (
            cell.ljust(width) if column in _LEFT else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def number(value: float | None) -> str:
    """Three significant figures, thousands separated; a dash for what was not measured."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cells(comparison: Comparison) -> tuple[str, ...]:
    spread, requirements = comparison.spread, required(comparison)
    verdicts = {requirement.met_by(comparison) for requirement in requirements}
    return (
        comparison.row,
        UNITS[comparison.metric],
        number(comparison.our_median),
        number(comparison.their_median),
        "-" if comparison.ratio is None else f"{comparison.ratio:.2f}",
        "-" if spread is None else f"{spread[0]:.2f}-{spread[1]:.2f}",
        ", ".join(requirement.text for requirement in requirements),
        _verdict(verdicts),
    )


def _verdict(verdicts: set[bool | None]) -> str:
    if False in verdicts:
        return "FALLS SHORT"
    if not verdicts:
        return ""
    return "not measured" if None in verdicts else "pass"
