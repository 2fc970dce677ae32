"""What is measured, as declarations: one dimension grows while all others stay as they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["produce", "consume"]


@dataclass(frozen=True)
class Step:
    """One measurement: a cluster, a topic, clients; ``dimension`` is what differs from the rest."""

    dimension: str
    kind: Kind
    brokers: int = 3
    replicas: int = 3
    partitions: int = 6
    producers: int = 1
    consumers: int = 1
    batch_kb: int = 1_000  # what librdkafka fills under load; Kafka's Java client stops at 16

    @property
    def value(self) -> int:
        """How large the dimension is in this step."""
        return int(getattr(self, self.dimension))

    @property
    def name(self) -> str:
        """Unique among all steps; the key of its figures."""
        return f"{self.kind}, {self.value} {self.words}"

    @property
    def words(self) -> str:
        """What the dimension is called."""
        return "KB batches" if self.dimension == "batch_kb" else self.dimension

    @property
    def topic(self) -> str:
        """A name for its topic."""
        return self.name.replace(", ", "-").replace(" ", "-")


def _growing(base: Step, *values: int) -> list[Step]:
    return [replace(base, **{base.dimension: value}) for value in values]  # type: ignore[arg-type]


STEPS: tuple[Step, ...] = (
    *_growing(Step("producers", "produce"), 1, 2, 4, 8),
    *_growing(Step("consumers", "consume"), 1, 2, 4),
    # One replica, so that only the number of brokers differs; copies have steps of their own.
    *_growing(Step("brokers", "produce", replicas=1), 1, 2, 3),
    *_growing(Step("brokers", "consume", replicas=1), 1, 2, 3),
    *_growing(Step("replicas", "produce"), 1, 2, 3),
    *_growing(Step("batch_kb", "produce"), 16, 64, 256, 1_000),
    *_growing(Step("partitions", "produce"), 1, 6, 24, 96),
    *_growing(Step("partitions", "consume"), 1, 6, 24, 96),
)
