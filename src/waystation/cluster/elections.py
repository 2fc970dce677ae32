"""Who leads a partition once its leader cannot, or should not.

1. A leader is chosen only among live replicas that hold everything committed: the in-sync set,
   then the eligible leaders.  If none lives, nobody leads: waiting loses nothing.
2. Every election has a new leader epoch, also if it elects the same node again: what a node
   led before it restarted is not what it leads after.  An election compares the registration
   of whom it elects, so that it never counts for that node's next life.
3. The preferred leader wins where it may, then the next in the order of the assignment.
4. Who wants to stop is not elected.  A node that is being drained is, but only for want of others.
5. Only where the topic or an operator says so does one lead who may lack committed records; the
   state then says since which epoch (``unclean_epoch``), and the decision says it too.
"""

from collections.abc import Collection
from typing import NamedTuple

from waystation.cluster import keys
from waystation.cluster.changes import ABSENT, Changes
from waystation.cluster.image import ClusterImage
from waystation.cluster.in_sync_changes import Sets, led_by, sets_after
from waystation.cluster.parts import PartitionImage, TopicImage
from waystation.cluster.policies import TopicPolicy
from waystation.cluster.values import PartitionValue, encode
from waystation.model.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    PreferredLeaderNotAvailableError,
    UnknownTopicError,
)
from waystation.model.ids import LeaderEpoch, NodeId, TopicPartition

_CAREFUL = TopicPolicy()


class Electorate(NamedTuple):
    """Who may be elected: ``able`` want to go on, ``staying`` are not being drained either."""

    live: Collection[NodeId]
    able: Collection[NodeId]
    staying: Collection[NodeId]

    @classmethod
    def of(cls, image: ClusterImage) -> "Electorate":
        """As the registrations, and the wishes to stop and to drain, have it."""
        able = [node for node in image.brokers if not image.is_leaving(node)]
        staying = [node for node in able if node not in image.drains]
        return cls(frozenset(image.brokers), frozenset(able), frozenset(staying))


class Elected(NamedTuple):
    """The outcome of an election: who leads, and the state that says so."""

    leader: NodeId | None
    state: PartitionValue
    unclean: bool = False


class UncleanElection(NamedTuple):
    """One leads who may lack what ``holders`` had; none of them is there."""

    partition: TopicPartition
    leader: NodeId
    epoch: LeaderEpoch
    holders: tuple[NodeId, ...]


def elect(
    image: ClusterImage, live: Collection[NodeId], ended: Collection[NodeId] = ()
) -> list[Changes]:
    """New leaders for partitions whose leader is not ``live``, or whose term has ``ended``.

    One decision per partition, each void if the partition's state has changed meanwhile.  A
    node in ``ended`` restarted: it leads nothing until it is elected again, perhaps at once.
    For a single node, which is its own controller; several have ``controller.py``.
    """
    decisions = []
    everyone = Electorate(live, live, live)
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            leader = partition.leader
            if leader is not None and leader in live and leader not in ended:
                continue
            elected = succeed(partition, everyone, _CAREFUL)
            if elected is not None:
                key = keys.partition(topic.id, number)
                decisions.append(
                    Changes(compares={key: partition.version}, puts={key: encode(elected.state)})
                )
    return decisions


def lead_again(image: ClusterImage, node: NodeId) -> list[Changes]:
    """Let ``node``, which restarted, lead again what nobody else has, under new epochs.

    Nobody needs to decide that: there is no other choice.  A single node starts by it.
    """
    if node not in image.brokers:
        return []
    only = Electorate((node,), (node,), (node,))
    found = (
        (topic, number, succeed(partition, only, _CAREFUL))
        for topic in image.topics.values()
        for number, partition in enumerate(topic.partitions)
        if partition.replicas == (node,)
    )
    return [
        election(image, topic, number, elected)
        for topic, number, elected in found
        if elected is not None and elected.leader is not None
    ]


def needed(
    partition: PartitionImage, electorate: Electorate, policy: TopicPolicy, *, prefer: bool
) -> Elected | None:
    """The election that a partition needs now, if any.

    A leader that lives is replaced only by one in sync: because it wants to stop, is being
    drained, or, if ``prefer``, is not the preferred one.
    """
    leader = partition.leader
    if leader is None or leader not in electorate.live:
        return succeed(partition, electorate, policy)
    if leader not in electorate.staying:
        others = electorate.staying if leader in electorate.able else electorate.able
        better = _first_of(partition, partition.in_sync, electorate.staying, others)
    elif prefer and partition.replicas[0] in electorate.staying:
        better = _first(partition.replicas[:1], partition.in_sync, electorate.staying)
    else:
        return None
    if better is None or better == leader:
        return None
    return Elected(better, led_by(partition, better, Sets(partition.in_sync, partition.eligible)))


def succeed(
    partition: PartitionImage, electorate: Electorate, policy: TopicPolicy
) -> Elected | None:
    """The partition's next state without its leader, or ``None`` if it stays as it is."""
    if partition.version == ABSENT:
        return None
    able, staying = electorate.able, electorate.staying
    leader = _first_of(partition, partition.in_sync, staying, able)
    if leader is not None:
        sets = Sets(partition.in_sync, partition.eligible)
        return Elected(leader, led_by(partition, leader, sets))
    leader = _first_of(partition, partition.eligible, staying, able)
    if leader is not None:
        # Of those in sync none lives, and only the chosen one is known to have it all now.
        sets = sets_after(partition, (leader,), policy.min_insync)
        return Elected(leader, led_by(partition, leader, sets))
    leader = _first_of(partition, partition.replicas, staying, able) if policy.unclean else None
    if leader is not None:
        return Elected(leader, led_by(partition, leader, Sets((leader,), ()), unclean=True), True)
    if partition.leader is None:
        return None
    return Elected(None, led_by(partition, None, Sets(partition.in_sync, partition.eligible)))


def election(image: ClusterImage, topic: TopicImage, number: int, elected: Elected) -> Changes:
    """The decision, void if the partition or the chosen one's registration changed meanwhile."""
    key = keys.partition(topic.id, number)
    compares = {key: topic.partitions[number].version}
    if elected.leader is not None:
        compares[keys.broker(elected.leader)] = image.brokers[elected.leader].version
    return Changes(compares=compares, puts={key: encode(elected.state)})


def reported(topic: TopicImage, number: int, elected: Elected) -> UncleanElection:
    """What operators must hear of an unclean election."""
    assert elected.leader is not None, "nobody was elected uncleanly"
    return UncleanElection(
        TopicPartition(topic.name, number),
        elected.leader,
        elected.state.leader_epoch,
        topic.partitions[number].holders,
    )


def elect_preferred(image: ClusterImage, name: str, number: int) -> Changes:
    """Let the preferred leader lead, as an operator asks."""
    topic, partition = _found(image, name, number)
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise ElectionNotNeededError(f"{name}-{number} is led by its preferred leader {preferred}")
    if preferred not in Electorate.of(image).able or preferred not in partition.in_sync:
        raise PreferredLeaderNotAvailableError(
            f"broker {preferred}, the preferred leader of {name}-{number}, is not there or not in "
            f"sync: in sync are {list(partition.in_sync)}"
        )
    sets = Sets(partition.in_sync, partition.eligible)
    elected = Elected(preferred, led_by(partition, preferred, sets))
    return election(image, topic, number, elected)


def elect_unclean(
    image: ClusterImage, name: str, number: int, policy: TopicPolicy
) -> tuple[Changes, UncleanElection | None]:
    """Let anyone lead a partition that nobody leads, as an operator asks who accepts the loss.

    One who holds everything is preferred even so; the report tells which it became.
    """
    topic, partition = _found(image, name, number)
    electorate = Electorate.of(image)
    if partition.leader is not None and partition.leader in electorate.live:
        raise ElectionNotNeededError(
            f"{name}-{number} is led by broker {partition.leader}: nobody else has to"
        )
    elected = succeed(partition, electorate, policy._replace(unclean=True))
    if elected is None or elected.leader is None:
        raise EligibleLeadersNotAvailableError(
            f"no replica of {name}-{number} is there: it is assigned to {list(partition.replicas)}"
        )
    told = reported(topic, number, elected) if elected.unclean else None
    return election(image, topic, number, elected), told


def _found(image: ClusterImage, name: str, number: int) -> tuple[TopicImage, PartitionImage]:
    topic = image.topic(name)
    if not 0 <= number < len(topic.partitions):
        raise UnknownTopicError(f"topic {name!r} has no partition {number}")
    return topic, topic.partitions[number]


def _first_of(
    partition: PartitionImage, allowed: Collection[NodeId], *choices: Collection[NodeId]
) -> NodeId | None:
    """The first in the order of the assignment, of the first choice that has anybody."""
    found = (_first(partition.replicas, allowed, choice) for choice in choices)
    return next((node for node in found if node is not None), None)


def _first(
    order: Collection[NodeId], allowed: Collection[NodeId], live: Collection[NodeId]
) -> NodeId | None:
    return next((node for node in order if node in allowed and node in live), None)
