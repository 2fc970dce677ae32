"""How well a cluster is, by its image alone: what an operator should know, and who holds what.

1. *Leaderless*: nobody who lives leads it; it can be neither written nor read.
2. *Under-replicated*: fewer live in sync than are assigned.  Who is being added is not missed.
3. *Under its minimum*: fewer live in sync than ``min.insync.replicas``; ``acks=all`` is refused.

Whoever asks, and whichever broker answers, hears the same of one revision.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from waystation.cluster.draining import Stuck, evacuate
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import PartitionImage
from waystation.cluster.policies import PolicyOf
from waystation.cluster.reassignment import Moving, under_way
from waystation.model.ids import NO_LEADER_EPOCH, NodeId, TopicPartition

Nodes = tuple[NodeId, ...]


class Trouble(NamedTuple):
    """A partition that is not as it should be, and in which ways."""

    partition: TopicPartition
    state: PartitionImage
    min_insync: int
    leaderless: bool
    under_replicated: bool
    under_min_insync: bool


class Journey(NamedTuple):
    """A partition on its way to other replicas, and for whom it waits.

    ``missing`` are those it waits for that do not live: without them it cannot end.
    """

    moving: Moving
    begun: bool
    waiting_for: Nodes
    missing: Nodes


class Unclean(NamedTuple):
    """A partition that was led by one who may have lacked committed records."""

    partition: TopicPartition
    state: PartitionImage


class Holding(NamedTuple):
    """How many partitions a node has, leads, and should lead."""

    replicas: int
    leaders: int
    preferred: int


class Health(NamedTuple):
    """What an operator asks first; ``holdings`` has dead nodes too that others wait for."""

    topics: int
    partitions: int
    troubles: list[Trouble]
    not_preferred: int
    journeys: list[Journey]
    stuck: list[Stuck]
    unclean: list[Unclean]
    holdings: dict[NodeId, Holding]


def health(image: ClusterImage, policy_of: PolicyOf, *, share_machines: bool = False) -> Health:
    """Everything at once; costs one look at each partition."""
    named = list(_named(image))
    return Health(
        len(image.topics),
        len(named),
        troubles(image, policy_of),
        sum(_led_by_another(image, state) for _, state in named),
        journeys(image),
        evacuate(image, 0, share_machines=share_machines).stuck,
        [Unclean(*each) for each in named if each[1].unclean_epoch != NO_LEADER_EPOCH],
        holdings(image),
    )


def troubles(image: ClusterImage, policy_of: PolicyOf) -> list[Trouble]:
    """Every partition that is not as it should be."""
    minimum = {name: policy_of(name).min_insync for name in image.topics}
    looked_at = (_trouble(image, *each, minimum[each[0].topic]) for each in _named(image))
    return [one for one in looked_at if one is not None]


def journeys(image: ClusterImage) -> list[Journey]:
    """Every reassignment under way, with those it waits for."""
    return [_journey(image, moving) for moving in under_way(image)]


def holdings(image: ClusterImage) -> dict[NodeId, Holding]:
    """What each node holds; every one that lives, holds a replica or is to be drained."""
    replicas: Counter[NodeId] = Counter()
    leaders: Counter[NodeId] = Counter()
    preferred: Counter[NodeId] = Counter()
    for _, state in _named(image):
        replicas.update(state.replicas)
        preferred.update(state.replicas[:1])
        if state.leader is not None:
            leaders[state.leader] += 1
    nodes = sorted({*image.brokers, *image.drains, *replicas})
    return {node: Holding(replicas[node], leaders[node], preferred[node]) for node in nodes}


def _named(image: ClusterImage) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    for name in sorted(image.topics):
        for number, state in enumerate(image.topics[name].partitions):
            yield TopicPartition(name, number), state


def _trouble(
    image: ClusterImage, where: TopicPartition, state: PartitionImage, minimum: int
) -> Trouble | None:
    """Who died is missed at once, not only when the leader has taken it out of the set."""
    moving = image.reassignment(image.topics[where.topic].id, where.partition)
    live = {node for node in state.in_sync if node in image.brokers}
    due = {node for node in state.replicas if moving is None or node in moving.origin}
    leaderless, few = state.leader not in image.brokers, len(live) < minimum
    if not leaderless and not few and due <= live:
        return None
    return Trouble(where, state, minimum, leaderless, not due <= live, few)


def _led_by_another(image: ClusterImage, state: PartitionImage) -> bool:
    return state.leader in image.brokers and state.leader != state.replicas[0]


def _journey(image: ClusterImage, moving: Moving) -> Journey:
    state = image.topic(moving.partition.topic).partitions[moving.partition.partition]
    begun = {*moving.target} <= {*state.replicas}
    waiting = tuple(node for node in moving.target if node not in state.in_sync)
    missing = tuple(node for node in waiting if node not in image.brokers)
    return Journey(moving, begun, waiting, missing)
