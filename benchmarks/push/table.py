"""Push side by side: latencies from due to read, what they cost, and what is promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.push.measuring import Figures
from benchmarks.push.rows import P99_MS, Scenario, Way
from benchmarks.report.table import align

Rounds = Mapping[tuple[Scenario, Way], Sequence[Figures]]

_HEADER = (
    *("scenario", "product", "by", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "missing"),
    *("CPU µs each", "memory MB", "required", "verdict"),
)


def render(rounds: Rounds) -> str:
    """Medians over rounds, scenario by scenario."""
    rows = [_row(scenario, way, figures) for (scenario, way), figures in _sorted(rounds)]
    return align([_HEADER, *rows])


def falls_short(rounds: Rounds) -> list[str]:
    """The promised rows that are too slow, and all that lost messages."""
    found = []
    for (scenario, way), figures in _sorted(rounds):
        name = f"{scenario.name}, {way.peer} by {way.dialect}"
        if _promised(scenario, way) and _of(figures, "p99_ms") >= P99_MS:
            found.append(f"{name}: p99 {_of(figures, 'p99_ms'):.1f} ms")
        if way.peer == "waystation" and any(one["missing"] or one["lost"] for one in figures):
            found.append(f"{name}: messages are missing")
    return found


def _row(scenario: Scenario, way: Way, figures: Sequence[Figures]) -> tuple[str, ...]:
    latencies = [_of(figures, f"{part}_ms") for part in ("p50", "p99", "p999", "max")]
    promised = _promised(scenario, way)
    return (
        scenario.name,
        way.peer,
        way.dialect,
        *(f"{value:.2f}" for value in latencies),
        f"{sum(one['missing'] for one in figures):.0f}",
        f"{_of(figures, 'cpu_us_per_delivery'):.1f}",
        f"{_of(figures, 'rss_mb'):.0f}",
        f"p99 < {P99_MS:g}" if promised else "",
        ("yes" if latencies[1] < P99_MS else "NO") if promised else "",
    )


def _promised(scenario: Scenario, way: Way) -> bool:
    return scenario.is_promised and way.peer == "waystation"


def _of(figures: Sequence[Figures], name: str) -> float:
    return median(one[name] for one in figures)


def _sorted(rounds: Rounds) -> list[tuple[tuple[Scenario, Way], Sequence[Figures]]]:
    order = list(dict.fromkeys(scenario for scenario, _ in rounds))
    return sorted(rounds.items(), key=lambda one: order.index(one[0][0]))
