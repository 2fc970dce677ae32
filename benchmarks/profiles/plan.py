"""What is measured, as declarations: profiles, clients, offered rates."""

from __future__ import annotations

from dataclasses import dataclass

PROFILES = ("latency", "balanced", "throughput")
RATES = (1_000, 3_000, 10_000, 30_000, 60_000)
QUICK_RATES = (2_000, 10_000, 30_000)
TYPICAL_RATE = 10_000
"""The rate at which profiles are compared; in every run."""
PARTITIONS = 12
SIZE_BYTES = 1_024
MAX = "max"
"""The step in which the client sends and reads as fast as it can."""

_BATCHES = "producer.batch.size=65536"


@dataclass(frozen=True)
class Clients:
    """How producers and consumers are set, under each profile of the broker."""

    name: str
    title: str
    settings: dict[str, tuple[str, ...]]


SAME = Clients("same", "The same clients for all", dict.fromkeys(PROFILES, (_BATCHES,)))
MATCHED = Clients(
    "matched",
    "Clients that are set for the same",
    {
        "latency": ("producer.linger.ms=1", "producer.batch.size=16384"),
        "balanced": (_BATCHES,),
        "throughput": (
            "producer.linger.ms=50",
            "producer.batch.size=1000000",
            "consumer.fetch.min.bytes=65536",
        ),
    },
)
CLIENTS = (SAME, MATCHED)


@dataclass(frozen=True)
class Step:
    """One load on one broker; no rate is as fast as it goes."""

    clients: Clients
    profile: str
    rate: int | None

    @property
    def name(self) -> str:
        """The key of its figures."""
        return f"{self.clients.name}/{self.profile}/{self.rate or MAX}"

    @property
    def topic(self) -> str:
        """A name for its topic."""
        return self.name.replace("/", "-")

    @property
    def settings(self) -> tuple[str, ...]:
        """Of librdkafka."""
        return self.clients.settings[self.profile]


def steps(profile: str, *, quick: bool = False) -> list[Step]:
    """All loads of one broker's life, the gentle ones first."""
    rates = (*(QUICK_RATES if quick else RATES), None)
    return [Step(clients, profile, rate) for clients in CLIENTS for rate in rates]
