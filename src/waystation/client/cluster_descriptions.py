"""What an admin is told about a cluster of several brokers: moves, elections, its state."""

from collections.abc import Mapping
from typing import NamedTuple

from waystation.client.bootstrap import Address
from waystation.client.descriptions import LogDir
from waystation.messages.cluster_status import ClusterStatusBroker, ClusterStatusResponse
from waystation.model.errors import WaystationError
from waystation.model.ids import NO_NODE, BrokerEpoch, LeaderEpoch, NodeId, TopicPartition

__all__ = [
    "BrokerStatus",
    "ClusterStatus",
    "Drained",
    "MovingPartition",
    "Outcomes",
    "Reassignment",
    "StuckReplica",
    "TroubledPartition",
    "UncleanLeader",
]

Nodes = tuple[NodeId, ...]
Outcomes = dict[TopicPartition, WaystationError | None]
"""For each partition why it was refused; ``None`` if it was not."""


class Reassignment(NamedTuple):
    """A partition on its way: who holds it, who is to come and who is to go."""

    replicas: Nodes
    adding: Nodes
    removing: Nodes


class Drained(NamedTuple):
    """What a broker still has: it may be switched off for good once both are 0.

    ``stuck`` are replicas that no other broker can take.
    """

    replicas: int
    leaders: int
    stuck: int


class BrokerStatus(NamedTuple):
    """A broker that is alive, or that others remember because it holds replicas.

    ``log_dirs`` is ``None`` if it was not asked or did not answer.
    """

    node: NodeId
    alive: bool
    epoch: BrokerEpoch
    address: Address | None
    rack: str | None
    machine: str | None
    features: Mapping[str, int]
    clean: bool
    leaving: bool
    draining: bool
    replicas: int
    leaders: int
    preferred_leaders: int
    log_dirs: tuple[LogDir, ...] | None = None


class TroubledPartition(NamedTuple):
    """A partition that is not as it should be, and in which ways."""

    partition: TopicPartition
    leader: NodeId | None
    leader_epoch: LeaderEpoch
    replicas: Nodes
    in_sync: Nodes
    eligible: Nodes
    min_in_sync: int
    leaderless: bool
    under_replicated: bool
    under_min_in_sync: bool


class MovingPartition(NamedTuple):
    """A partition on its way to other replicas.

    It waits for ``waiting_for`` to be in sync; those of them that are ``missing`` do not live,
    so it is stuck until they come back or it is cancelled.
    """

    partition: TopicPartition
    replicas: Nodes
    target: Nodes
    adding: Nodes
    removing: Nodes
    begun: bool
    waiting_for: Nodes
    missing: Nodes


class StuckReplica(NamedTuple):
    """A replica on a drained broker that no other broker can take."""

    partition: TopicPartition
    node: NodeId


class UncleanLeader(NamedTuple):
    """A partition that was led, since ``unclean_epoch``, by one who may have lacked records."""

    partition: TopicPartition
    leader: NodeId | None
    leader_epoch: LeaderEpoch
    unclean_epoch: LeaderEpoch


class ClusterStatus(NamedTuple):
    """The cluster as one of its brokers sees it; numbers are whole, lists may be cut."""

    cluster_id: str
    answered_by: NodeId
    revision: int
    controller: NodeId | None
    controller_epoch: int
    topic_count: int
    partition_count: int
    leaderless_count: int
    under_replicated_count: int
    under_min_in_sync_count: int
    not_preferred_count: int
    reassignment_count: int
    stuck_count: int
    unclean_count: int
    brokers: tuple[BrokerStatus, ...]
    partitions: tuple[TroubledPartition, ...]
    reassignments: tuple[MovingPartition, ...]
    stuck: tuple[StuckReplica, ...]
    unclean: tuple[UncleanLeader, ...]
    store_silent_ms: int = 0
    """For how long the store has not answered that broker: the rest is at least as old."""

    @property
    def leaderless(self) -> tuple[TroubledPartition, ...]:
        """Partitions that can be neither written nor read."""
        return tuple(one for one in self.partitions if one.leaderless)

    @property
    def under_replicated(self) -> tuple[TroubledPartition, ...]:
        """Partitions with fewer replicas in sync than they are assigned."""
        return tuple(one for one in self.partitions if one.under_replicated)

    @property
    def under_min_in_sync(self) -> tuple[TroubledPartition, ...]:
        """Partitions that take no ``acks=all`` because too few replicas are in sync."""
        return tuple(one for one in self.partitions if one.under_min_in_sync)

    @property
    def healthy(self) -> bool:
        """Whether every partition is led and every replica in sync."""
        return not (self.leaderless_count or self.under_replicated_count)


def status_of(
    told: ClusterStatusResponse, log_dirs: Mapping[NodeId, tuple[LogDir, ...]]
) -> ClusterStatus:
    """An answer in a client's words; ``log_dirs`` of those brokers that told theirs."""
    return ClusterStatus(
        told.cluster_id,
        NodeId(told.answered_by),
        told.revision,
        somebody(told.controller_id),
        told.controller_epoch,
        told.topic_count,
        told.partition_count,
        told.leaderless_count,
        told.under_replicated_count,
        told.under_min_in_sync_count,
        told.not_preferred_count,
        told.reassignment_count,
        told.stuck_count,
        told.unclean_count,
        tuple(_broker(one, log_dirs.get(NodeId(one.broker_id))) for one in told.brokers),
        tuple(
            TroubledPartition(
                TopicPartition(one.topic, one.partition),
                somebody(one.leader),
                LeaderEpoch(one.leader_epoch),
                nodes(one.replicas),
                nodes(one.in_sync),
                nodes(one.eligible),
                one.min_in_sync,
                one.leaderless,
                one.under_replicated,
                one.under_min_in_sync,
            )
            for one in told.partitions
        ),
        tuple(
            MovingPartition(
                TopicPartition(one.topic, one.partition),
                nodes(one.replicas),
                nodes(one.target),
                nodes(one.adding),
                nodes(one.removing),
                one.begun,
                nodes(one.waiting_for),
                nodes(one.missing),
            )
            for one in told.reassignments
        ),
        tuple(
            StuckReplica(TopicPartition(one.topic, one.partition), NodeId(one.broker_id))
            for one in told.stuck
        ),
        tuple(
            UncleanLeader(
                TopicPartition(one.topic, one.partition),
                somebody(one.leader),
                LeaderEpoch(one.leader_epoch),
                LeaderEpoch(one.unclean_epoch),
            )
            for one in told.unclean
        ),
        told.store_silent_ms,
    )


def nodes(told: list[int]) -> Nodes:
    """Brokers by their numbers."""
    return tuple(map(NodeId, told))


def somebody(told: int) -> NodeId | None:
    """A broker, or nobody, which the protocol writes as -1."""
    return None if told == NO_NODE else NodeId(told)


def _broker(one: ClusterStatusBroker, log_dirs: tuple[LogDir, ...] | None) -> BrokerStatus:
    return BrokerStatus(
        NodeId(one.broker_id),
        one.alive,
        BrokerEpoch(one.epoch),
        Address(one.host, one.port) if one.alive else None,
        one.rack,
        one.machine,
        {feature.name: feature.version for feature in one.features},
        one.clean,
        one.leaving,
        one.draining,
        one.replicas,
        one.leaders,
        one.preferred_leaders,
        log_dirs,
    )
