"""A result on disk: ``benchmarks/results/<date>/`` with the JSON, the table and the plot.

Written anew after every pair, so that an interrupted run keeps what it measured.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from benchmarks.report import plot, table
from benchmarks.report.ratios import Comparison, compare

OURS, THEIRS = "waystation", "kafka"
_DURABLE_ROWS = (
    "rows of disk: Waystation answers after fdatasync, Kafka as shipped never syncs; rows of "
    "cluster: three brokers, three replicas, CPU and memory summed over all processes"
)


@dataclass
class Result:
    """Everything one invocation measured and on what."""

    machine: dict[str, object]
    peers: dict[str, dict[str, object]]
    arguments: dict[str, object]
    pairs: list[dict[str, dict[str, dict[str, float]]]] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    def comparisons(self) -> list[Comparison]:
        """Our figures beside theirs."""
        return compare(self.pairs, OURS, THEIRS)

    def heading(self) -> str:
        """Machine, versions and both configurations, for the top of the table."""
        lines = ["machine: " + ", ".join(f"{name} {value}" for name, value in self.machine.items())]
        for peer, facts in self.peers.items():
            lines.append(f"{peer}:")
            for name, value in facts.items():
                lines.extend(_fact_lines(name, value))
        return "\n".join(lines)

    def text(self) -> str:
        """The table with its notes and its summary, as printed at the end."""
        comparisons = self.comparisons()
        noted = [f"note: {row}: {why}" for row, why in self.notes.items()]
        return "\n".join(
            [
                f"{len(self.pairs)} alternating pairs; medians; ratio = {OURS} / {THEIRS}, taken "
                "per pair; spread = lowest and highest ratio",
                _DURABLE_ROWS,
                "",
                table.render(comparisons),
                "",
                *noted,
                table.summary(comparisons),
            ]
        )

    def write(self, directory: Path) -> None:
        """The JSON, the table and, if it can be drawn, the plot."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "results.json").write_text(json.dumps(vars(self), indent=1) + "\n")
        (directory / "table.txt").write_text(f"{self.heading()}\n\n{self.text()}\n")
        title = f"Waystation against Apache Kafka, median of {len(self.pairs)} pairs"
        plot.draw(self.comparisons(), directory / "ratios.png", title)


def fresh_directory(parent: Path, today: date) -> Path:
    """``<date>``, or ``<date>-2`` and so on when there is one already: results are kept."""
    names = (f"{today}" if n == 1 else f"{today}-{n}" for n in range(1, 1000))
    return next(parent / name for name in names if not (parent / name).exists())


def _fact_lines(name: str, value: object) -> list[str]:
    if isinstance(value, dict):
        return [f"  {name}:", *(f"    {key}={text}" for key, text in value.items())]
    return [f"  {name}: {value}"]
