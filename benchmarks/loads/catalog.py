"""Every load that is compared, as declarations: what is run, in which broker life, how much.

A ``Scenario`` is one broker life on a fresh directory; its loads run in order after a warm-up
that is not measured (a JVM compiles its hot code only then).  A load's name is its row in the
table, so names are unique; ``report/requirements.py`` refers to rows by these names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Kind(Enum):
    """How a load is run and what it yields."""

    PRODUCE = "produce"
    CONSUME = "consume"
    TAIL = "tail"
    LATENCY = "latency"
    JAVA_PRODUCE = "java produce"
    JAVA_ASSIGN = "java consume"
    JAVA_GROUP = "ConsumerPerformance"


@dataclass(frozen=True)
class Load:
    """One row: a client, a shape of traffic, an amount."""

    name: str
    kind: Kind
    size_bytes: int = 1024
    partitions: int = 6
    acks: str = "all"
    count: int = 0
    rate_per_s: int = 12_000
    seconds: float = 20.0
    warmup_seconds: float = 5.0
    settings: tuple[str, ...] = ()
    sticky: bool = False
    """Whether the client fills one partition's batch after the other's, as clients do by default;
    otherwise each message goes to the next partition, which makes the smallest batches there are.
    Timed loads only."""

    @property
    def topic(self) -> str:
        """Produce and consume of one shape share a topic; timed loads have their own."""
        if self.kind in (Kind.TAIL, Kind.LATENCY):
            return self.name.replace(" ", "-").replace("=", "")
        client = "java" if self.kind.value.startswith(("java", "Consumer")) else "rd"
        return f"{client}-{self.size_bytes}-{self.partitions}"

    def scaled(self, factor: float) -> Load:
        """The same load, shorter or longer."""
        return replace(
            self,
            count=max(1_000, int(self.count * factor)),
            seconds=max(3.0, self.seconds * factor),
            warmup_seconds=max(2.0, self.warmup_seconds * factor),
        )


@dataclass(frozen=True)
class Scenario:
    """One broker life: durability asked of Waystation, warm-up, measured loads.

    With several ``brokers`` it is the life of a cluster, whose topics have three replicas.
    """

    name: str
    loads: tuple[Load, ...]
    durability: str = "memory"
    warmup: Load | None = None
    brokers: int = 1

    @property
    def replicas(self) -> int:
        """Of every partition."""
        return min(3, self.brokers)

    @property
    def prefix(self) -> str:
        """What the rows that every life has begin with."""
        return "cluster " if self.brokers > 1 else ""


_MESSAGES = {1024: 1_000_000, 100: 5_000_000}
_SIZE_NAMES = {1024: "1KB", 100: "100B"}


def _produce(size: int, partitions: int, acks: str) -> Load:
    name = f"produce {_SIZE_NAMES[size]} {partitions}p acks={acks}"
    return Load(name, Kind.PRODUCE, size, partitions, acks, _MESSAGES[size])


def _consume(size: int, partitions: int) -> Load:
    name = f"consume {_SIZE_NAMES[size]} {partitions}p"
    return Load(name, Kind.CONSUME, size, partitions, count=2 * _MESSAGES[size])


def _tail(size: int) -> Load:
    name = f"produce and tail {_SIZE_NAMES[size]} 6p"
    return Load(name, Kind.TAIL, size, 6, "all", _MESSAGES[size])


def _throughput(size: int) -> tuple[Load, ...]:
    produced = [_produce(size, p, acks) for p in (1, 6) for acks in ("1", "all")]
    return (*produced, _consume(size, 1), _consume(size, 6), _tail(size))


def _latency(prefix: str, linger_ms: int, partitions: int = 6, *, sticky: bool = False) -> Load:
    return Load(
        f"{prefix} {partitions}p linger={linger_ms}ms{' sticky' if sticky else ''}",
        Kind.LATENCY,
        partitions=partitions,
        settings=(f"producer.linger.ms={linger_ms}",),
        sticky=sticky,
    )


def _durable(batch_kb: int, partitions: int) -> Load:
    return Load(
        f"disk produce {batch_kb}KB batches {partitions}p",
        Kind.PRODUCE,
        partitions=partitions,
        count=_MESSAGES[1024],
        settings=(f"producer.batch.size={min(batch_kb * 1024, 1_000_000)}",),
    )


def _warmup(size: int) -> Load:
    return Load("warm-up", Kind.PRODUCE, size, 6, "all", _MESSAGES[size])


def _in_cluster(load: Load, factor: float = 1.0) -> Load:
    """The same load where every message is written three times; or less of it."""
    return replace(load, name=f"cluster {load.name}", count=int(load.count * factor))


_TIMED_WARMUP = replace(_latency("warm-up", 5), seconds=5.0)

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("start", ()),
    Scenario("throughput-1KB", _throughput(1024), warmup=_warmup(1024)),
    Scenario("throughput-100B", _throughput(100), warmup=_warmup(100)),
    Scenario(
        "java-clients",
        (
            Load("java produce 1KB 6p", Kind.JAVA_PRODUCE, 1024, count=_MESSAGES[1024]),
            Load("java produce 100B 6p", Kind.JAVA_PRODUCE, 100, count=_MESSAGES[100]),
            Load("java consume 1KB 6p", Kind.JAVA_ASSIGN, 1024, count=_MESSAGES[1024]),
            Load("java consume 100B 6p", Kind.JAVA_ASSIGN, 100, count=_MESSAGES[100]),
            Load("ConsumerPerformance 1KB 6p", Kind.JAVA_GROUP, 1024, count=_MESSAGES[1024]),
        ),
        warmup=_warmup(1024),
    ),
    Scenario("latency", (_latency("latency", 5), _latency("latency", 1)), warmup=_TIMED_WARMUP),
    Scenario(
        "disk",
        (
            *(_durable(64, partitions) for partitions in (1, 6)),
            *(_durable(kb, 6) for kb in (256, 1024)),
            _latency("disk latency", 5),
            _latency("disk latency", 1),
            _latency("disk latency", 5, partitions=100),
        ),
        durability="disk",
        warmup=_warmup(1024),
    ),
    Scenario("cluster-start", (), brokers=3),
    Scenario(
        "cluster",
        (
            _in_cluster(_produce(1024, 1, "all")),
            _in_cluster(_produce(1024, 6, "all")),
            _in_cluster(_produce(100, 6, "all"), 0.6),
            _in_cluster(_consume(1024, 6), 0.5),
            _in_cluster(_tail(1024), 0.5),
            _in_cluster(_latency("latency", 5, sticky=True)),
            _in_cluster(_latency("latency", 5)),
            _in_cluster(_latency("latency", 1)),
        ),
        warmup=_in_cluster(_warmup(1024), 0.5),
        brokers=3,
    ),
    Scenario(
        "cluster-disk",
        (
            replace(_in_cluster(_durable(1024, 6)), name="cluster disk produce 1KB 6p acks=all"),
            _in_cluster(_latency("disk latency", 5, sticky=True)),
            _in_cluster(_latency("disk latency", 5)),
            _in_cluster(_latency("disk latency", 1)),
        ),
        durability="disk",
        warmup=_in_cluster(_warmup(1024), 0.5),
        brokers=3,
    ),
)


def chosen(only: tuple[str, ...], factor: float) -> list[Scenario]:
    """The scenarios, and of them the loads, whose name contains one of ``only``; all if empty."""
    scenarios = []
    for scenario in SCENARIOS:
        whole = not only or any(text in scenario.name for text in only)
        loads = tuple(
            load.scaled(factor)
            for load in scenario.loads
            if whole or any(text in load.name for text in only)
        )
        if loads or (whole and not scenario.loads):
            warmup = scenario.warmup.scaled(factor) if scenario.warmup else None
            scenarios.append(replace(scenario, loads=loads, warmup=warmup))
    return scenarios
