"""Which offsets a commit brought: first, last and count per topic and partition.

The count tells gaps from losses: a range of a compacted topic, or of one with aborted
transactions, holds fewer rows than offsets.
"""

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["OFFSETS", "CommittedRanges", "OffsetRange", "Ranges", "from_json", "merge", "to_json"]

OFFSETS = "waystation.offsets"


class OffsetRange(NamedTuple):
    """Offsets ``first`` to ``last``, both included, and how many ``rows`` there are of them."""

    first: int
    last: int
    rows: int

    def joined(self, other: "OffsetRange") -> "OffsetRange":
        """Both, as one range."""
        return OffsetRange(
            min(self.first, other.first), max(self.last, other.last), self.rows + other.rows
        )


Ranges = Mapping[tuple[str, int], OffsetRange]


class CommittedRanges(NamedTuple):
    """What one commit of a table says about where its rows come from."""

    version: int
    sink: str | None
    batch: int | None
    committed_at_ms: int
    ranges: Ranges


def merge(several: Iterable[Ranges]) -> dict[tuple[str, int], OffsetRange]:
    """What several tasks brought, together."""
    merged: dict[tuple[str, int], OffsetRange] = {}
    for ranges in several:
        for place, brought in ranges.items():
            known = merged.get(place)
            merged[place] = brought if known is None else known.joined(brought)
    return merged


def to_json(ranges: Ranges) -> dict[str, dict[str, list[int]]]:
    """``{"topic": {"0": [first, last, count]}}``, in the order of topics and partitions."""
    nested: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), brought in sorted(ranges.items()):
        nested.setdefault(topic, {})[str(partition)] = list(brought)
    return nested


def from_json(nested: Mapping[str, Mapping[str, list[int]]] | str | None) -> Ranges:
    """The inverse of ``to_json``; takes its text as well."""
    found = json.loads(nested) if isinstance(nested, str) else nested
    return {
        (topic, int(partition)): OffsetRange(*brought)
        for topic, partitions in (found or {}).items()
        for partition, brought in partitions.items()
    }
