"""The parts an image is made of; each carries the version that its next change compares."""

from collections.abc import Mapping
from typing import NamedTuple

from waystation.cluster.changes import ABSENT
from waystation.model.ids import (
    NO_LEADER_EPOCH,
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    PartitionEpoch,
    TopicId,
)

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")


class Site(NamedTuple):
    """Where a broker stands: what dies with it, and what else may go dark with it."""

    node: NodeId
    rack: str | None = None
    machine: str | None = None


class BrokerImage(NamedTuple):
    """A broker that holds its lease, and where clients reach it."""

    id: NodeId
    epoch: BrokerEpoch
    host: str
    port: int
    rack: str | None
    version: int
    machine: str | None = None
    clean: bool = False
    features: Mapping[str, int] = {}

    @property
    def site(self) -> Site:
        """Where it stands; a broker that names no machine has one to itself."""
        return Site(self.id, self.rack, self.machine)


class ControllerImage(NamedTuple):
    """Who decides, under which epoch."""

    node: NodeId
    epoch: int
    version: int


class PartitionImage(NamedTuple):
    """One partition's replicas and state."""

    replicas: tuple[NodeId, ...]
    leader: NodeId | None
    leader_epoch: LeaderEpoch
    in_sync: tuple[NodeId, ...]
    eligible: tuple[NodeId, ...]
    partition_epoch: PartitionEpoch
    version: int
    unclean_epoch: LeaderEpoch = NO_LEADER_EPOCH

    @property
    def holders(self) -> tuple[NodeId, ...]:
        """Who is known to hold everything committed."""
        return self.in_sync + self.eligible


class TopicImage(NamedTuple):
    """A topic that exists; partition ``n`` is ``partitions[n]``."""

    name: str
    id: TopicId
    partitions: tuple[PartitionImage, ...]
    version: int

    @property
    def internal(self) -> bool:
        """Whether the cluster keeps its own records in it."""
        return self.name in INTERNAL_TOPICS

    @property
    def assignment(self) -> tuple[tuple[NodeId, ...], ...]:
        """The replicas of each partition."""
        return tuple(partition.replicas for partition in self.partitions)


class ViewImage(NamedTuple):
    """A topic that can only be read: what is meant by ``where`` of topic ``on``.

    ``on_id`` is the life of that topic in which the view was made.
    """

    name: str
    id: TopicId
    on: str
    on_id: TopicId
    where: str
    version: int


class ReassignmentImage(NamedTuple):
    """The replicas a partition shall have, and what it goes back to if that is cancelled."""

    target: tuple[NodeId, ...]
    origin: tuple[NodeId, ...]
    version: int


class LeavingImage(NamedTuple):
    """The life of a broker that wants to end."""

    epoch: BrokerEpoch
    version: int


class ConfigImage(NamedTuple):
    """Options set for one topic or broker, as texts."""

    options: Mapping[str, str]
    version: int


class CounterImage(NamedTuple):
    """The first number of a counter that nobody was given yet."""

    next: int
    version: int


NO_OPTIONS = ConfigImage({}, ABSENT)
NO_COUNT = CounterImage(0, ABSENT)
UNBORN = PartitionImage((), None, NO_LEADER_EPOCH, (), (), PartitionEpoch(-1), ABSENT)
