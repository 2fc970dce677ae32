"""What Waystation must reach, one line each; everything else in the table is for information.

A requirement holds for every row whose name matches its pattern.  ``ratio`` compares the median
ratio ours/theirs, ``ours`` our own median.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from benchmarks.report.ratios import Comparison


@dataclass(frozen=True)
class Requirement:
    """One bound on one metric of the rows that match."""

    rows: str
    metric: str
    of: str  # "ratio" or "ours"
    at_least: float | None = None
    at_most: float | None = None

    def covers(self, comparison: Comparison) -> bool:
        """Whether it speaks about this row and metric."""
        return self.metric == comparison.metric and fnmatchcase(comparison.row, self.rows)

    def met_by(self, comparison: Comparison) -> bool | None:
        """None when a side was not measured, so that nothing can be said."""
        value = comparison.ratio if self.of == "ratio" else comparison.our_median
        if value is None:
            return None
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)

    @property
    def text(self) -> str:
        """As it stands in the table: ``ratio >= 0.95``, ``ours <= 10``."""
        if self.at_least is not None:
            return f"{self.of} >= {_plain(self.at_least)}"
        assert self.at_most is not None, f"{self} bounds nothing"
        return f"{self.of} <= {_plain(self.at_most)}"


def _like_for_like(rows: str) -> tuple[Requirement, ...]:
    """Throughput as Kafka's and no more CPU for it: batching clients are the bottleneck."""
    return (
        Requirement(rows, "messages_per_s", "ratio", at_least=0.95),
        Requirement(rows, "cpu_ms_per_mb", "ratio", at_most=1.0),
    )


REQUIREMENTS: tuple[Requirement, ...] = (
    *_like_for_like("produce *"),
    *_like_for_like("consume *"),
    *_like_for_like("java *"),
    *_like_for_like("ConsumerPerformance *"),
    Requirement("produce 100B 1p acks=1", "messages_per_s", "ours", at_least=1_000_000),
    Requirement("consume 100B 1p", "messages_per_s", "ours", at_least=1_000_000),
    Requirement("latency *", "publish_p99_ms", "ratio", at_most=1.0),
    Requirement("latency *", "end_to_end_p99_ms", "ratio", at_most=1.0),
    Requirement("memory idle", "rss_mb", "ratio", at_most=0.2),
    Requirement("memory after throughput-*", "peak_rss_mb", "ratio", at_most=0.2),
    Requirement("memory after latency", "peak_rss_mb", "ratio", at_most=0.2),
    Requirement("start", "ready_ms", "ours", at_most=1_500),
    Requirement("disk produce *", "messages_per_s", "ratio", at_least=0.7),
    Requirement("disk latency 6p *", "publish_p99_ms", "ours", at_most=10),
    Requirement("disk latency 100p *", "publish_p99_ms", "ours", at_most=20),
    Requirement("cluster produce *", "messages_per_s", "ratio", at_least=0.8),
    Requirement("cluster latency 6p linger=5ms*", "publish_p99_ms", "ours", at_most=10),
    Requirement("cluster disk latency 6p linger=5ms*", "publish_p99_ms", "ours", at_most=25),
)

QUEUES: tuple[tuple[str, Requirement], ...] = (
    ("rabbitmq", Requirement("queue disk 1KB *", "messages_per_s", "ratio", at_least=5.0)),
    ("kafka", Requirement("queue memory 1KB *", "messages_per_s", "ratio", at_least=1.0)),
    ("kafka", Requirement("queue * by key *", "messages_per_s", "ours", at_least=20_000)),
)
"""What ``benchmarks.queues`` must reach, and beside whom."""


def _plain(bound: float) -> str:
    return f"{bound:,.0f}" if bound >= 1_000 else f"{bound:g}"


def required(comparison: Comparison) -> list[Requirement]:
    """The requirements that speak about this row and metric; often none."""
    return [requirement for requirement in REQUIREMENTS if requirement.covers(comparison)]
