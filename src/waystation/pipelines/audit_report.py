"""What an audit found: per partition in numbers, and the first differences by offset.

A report is clean if no record is lost, doubled, reordered, different or extra.  Records that
the archive has not reached yet, and those that only the lake still has, are no differences.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from waystation.model.ids import TopicPartition
from waystation.pipelines.report import Table

__all__ = ["AuditReport", "Finding", "PartitionAudit", "Verdict", "collected"]


class Verdict(StrEnum):
    """What is to be said of one offset."""

    MATCHED = "matched"
    LOST = "lost"
    DOUBLED = "doubled"
    REORDERED = "reordered"
    DIFFERENT = "different"
    EXTRA = "extra"
    PENDING = "pending"
    BEYOND_RETENTION = "beyond_retention"


DIFFERENCES = (
    Verdict.LOST,
    Verdict.DOUBLED,
    Verdict.REORDERED,
    Verdict.DIFFERENT,
    Verdict.EXTRA,
)
MEANINGS = {
    Verdict.LOST: "in the log, and the archive is past it, but not in the lake",
    Verdict.DOUBLED: "more than once in lake and quarantine",
    Verdict.REORDERED: "after a later one in the lake",
    Verdict.DIFFERENT: "in both, with another key, value, time or header",
    Verdict.EXTRA: "in the lake, but not in the log",
}


class Finding(NamedTuple):
    """A run of neighbouring offsets that all have the same fault."""

    verdict: Verdict
    topic: str
    partition: int
    first: int
    last: int
    offsets: int

    def __str__(self) -> str:
        span = f"{self.first}" if self.first == self.last else f"{self.first}..{self.last}"
        return f"{self.topic}-{self.partition} {self.verdict}: {span} ({self.offsets})"


@dataclass(frozen=True)
class PartitionAudit:
    """One partition; every number but the three offsets counts offsets."""

    topic: str
    partition: int
    log_start: int
    log_end: int
    archived_end: int
    matched: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    different: int = 0
    extra: int = 0
    pending: int = 0
    beyond_retention: int = 0
    quarantined: int = 0

    @property
    def differences(self) -> int:
        """How many offsets are not as they should be."""
        return sum(getattr(self, verdict) for verdict in DIFFERENCES)


@dataclass(frozen=True)
class AuditReport:
    """Log and lake, compared."""

    lake: str
    partitions: tuple[PartitionAudit, ...]
    findings: tuple[Finding, ...] = ()
    """The first differences, not all of them."""
    remarks: tuple[str, ...] = ()
    """Differences that are not about single offsets, such as commits out of order."""

    @property
    def clean(self) -> bool:
        """Whether the lake holds what the log holds, once and in order."""
        return not self.remarks and not any(one.differences for one in self.partitions)

    def total(self, name: str) -> int:
        """One of the numbers over all partitions."""
        return sum(getattr(one, name) for one in self.partitions)

    def table(self) -> Table:
        """A row per partition."""
        titles = ("topic", "partition", "log", "archived to", *_COUNTED)
        rows = [
            (
                one.topic,
                one.partition,
                f"{one.log_start}..{one.log_end}",
                one.archived_end,
                *(getattr(one, name) for name in _COUNTED),
            )
            for one in self.partitions
        ]
        return Table([title.replace("_", " ").upper() for title in titles], rows)

    def as_dict(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "lake": self.lake,
            "clean": self.clean,
            **{name: self.total(name) for name in _COUNTED},
            "partitions": [asdict(one) for one in self.partitions],
            "findings": [{**one._asdict(), "verdict": str(one.verdict)} for one in self.findings],
            "remarks": list(self.remarks),
        }

    def sentence(self) -> str:
        """The outcome in one line."""
        if self.clean:
            rest = ", ".join(
                f"{self.total(name)} {name.replace('_', ' ')}"
                for name in ("pending", "beyond_retention", "quarantined")
                if self.total(name)
            )
            return f"clean: {self.total('matched')} records match" + (f"; {rest}" if rest else "")
        found = [f"{self.total(name)} {name}" for name in DIFFERENCES if self.total(name)]
        return "different: " + ", ".join([*found, *self.remarks])


_COUNTED = (
    "matched",
    *(str(verdict) for verdict in DIFFERENCES),
    "pending",
    "beyond_retention",
    "quarantined",
)


@dataclass
class _Tally:
    """What is known of a partition while counts come in."""

    known: PartitionAudit
    counts: dict[str, int] = field(default_factory=dict)


def collected(
    lake: str,
    partitions: Mapping[TopicPartition, PartitionAudit],
    counts: Iterable[tuple[str, int, Verdict, int]],
    findings: Sequence[Finding] = (),
    remarks: Sequence[str] = (),
) -> AuditReport:
    """Put counts by topic, partition and verdict together with what is known of the partitions.

    A partition that only the lake has is one of the report too, with an empty log.
    """
    tallies = {where: _Tally(known) for where, known in partitions.items()}
    for topic, partition, verdict, count in counts:
        where = TopicPartition(topic, partition)
        tally = tallies.setdefault(where, _Tally(PartitionAudit(topic, partition, 0, 0, 0)))
        tally.counts[verdict] = tally.counts.get(verdict, 0) + count
    return AuditReport(
        lake,
        tuple(
            replace(tallies[where].known, **tallies[where].counts)  # type: ignore[arg-type]  # counts only
            for where in sorted(tallies)
        ),
        tuple(findings),
        tuple(remarks),
    )
