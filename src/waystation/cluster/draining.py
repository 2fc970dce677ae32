"""How a node comes to hold nothing, and how a broker stops without being missed.

*A drain* is an operator's wish and stays until it is lifted.  The node gets no new replicas and
leads only what nobody else can; the controller reassigns what it holds, a few partitions at a
time.  It works for a dead node too: others have the records.

*Leaving* is a broker's own wish, and gone with its lease.  The controller lets others lead what
it leads; then it may stop, and nobody waits for a lease to end.
"""

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from waystation.cluster import keys
from waystation.cluster.changes import ABSENT, Changes
from waystation.cluster.elections import Electorate, needed
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import Site, TopicImage
from waystation.cluster.placement import best_site, listed, sites_for_new
from waystation.cluster.policies import TopicPolicy
from waystation.cluster.reassignment import Replicas, asked, settled, under_way
from waystation.cluster.values import DrainValue, LeavingValue, encode
from waystation.model.errors import UnknownBrokerError
from waystation.model.ids import NodeId, TopicId, TopicPartition

_CAREFUL = TopicPolicy()


class Held(NamedTuple):
    """What a node still has: a drained one has nothing."""

    replicas: int
    leaders: int


class Stuck(NamedTuple):
    """A replica on a drained node that no other broker could take."""

    partition: TopicPartition
    node: NodeId


class Evacuation(NamedTuple):
    """Moves off drained nodes to begin now, and replicas that have nowhere to go."""

    moves: list[Changes]
    stuck: list[Stuck]


def drain(image: ClusterImage, node: NodeId) -> Changes:
    """Let ``node`` hold nothing; nothing to do if that is wished for already."""
    if node not in image.brokers and held(image, node) == (0, 0):
        raise UnknownBrokerError(f"there is no broker {node}; there are {listed(image.brokers)}")
    if node in image.drains:
        return Changes()
    key = keys.drain(node)
    return Changes(compares={key: ABSENT}, puts={key: encode(DrainValue())})


def undrain(image: ClusterImage, node: NodeId) -> Changes:
    """Let ``node`` hold replicas again; moves under way are finished all the same."""
    if node not in image.drains:
        return Changes()
    return Changes(compares={keys.drain(node): image.drains[node]}, deletes=[keys.drain(node)])


def leave(image: ClusterImage, node: NodeId) -> Changes:
    """The wish of a registered broker to stop."""
    broker = image.brokers.get(node)
    if broker is None:
        raise UnknownBrokerError(f"broker {node} is not registered, so it cannot leave")
    key = keys.leaving(node)
    return Changes(
        compares={keys.broker(node): broker.version},
        puts={key: encode(LeavingValue(epoch=broker.epoch))},
        leased=[key],
    )


def may_stop(image: ClusterImage, node: NodeId) -> bool:
    """Whether ``node``, which wants to stop, leads nothing that another one could lead now."""
    electorate = Electorate.of(image)
    return node in image.leaving and not any(
        needed(partition, electorate, _CAREFUL, prefer=False)
        for topic in image.topics.values()
        for partition in topic.partitions
        if partition.leader == node
    )


def held(image: ClusterImage, node: NodeId) -> Held:
    """What ``node`` still has, or is to get."""
    partitions = [each for topic in image.topics.values() for each in topic.partitions]
    coming = sum(
        node in each.target and node not in image.topic(name).partitions[number].replicas
        for each in under_way(image)
        for name, number in (each.partition,)
    )
    return Held(
        sum(node in each.replicas for each in partitions) + coming,
        sum(node == each.leader for each in partitions),
    )


def evacuate(
    image: ClusterImage, room: int, *, share_machines: bool, busy: Collection[TopicId] = ()
) -> Evacuation:
    """Moves off drained nodes, at most ``room``; each goes where it is apart and least is.

    A move under way to a drained node has its room already.  Topics that are ``busy`` have other
    steps taken now; their turn comes next time.
    """
    outcome = Evacuation([], [])
    if not image.drains:
        return outcome
    load, candidates = replica_counts(image), sites_for_new(image)
    for topic in image.topics.values():
        for number in range(len(topic.partitions)):
            replicas = settled(image, topic, number)
            if not any(node in image.drains for node in replicas):
                continue
            target = _elsewhere(image, replicas, candidates, load, share_machines)
            name = TopicPartition(topic.name, number)
            outcome.stuck.extend(Stuck(name, each) for each in target if each in image.drains)
            fresh = image.reassignment(topic.id, number) is None
            if target != replicas and topic.id not in busy and (room > 0 or not fresh):
                room -= fresh
                load.update(target)
                load.subtract(replicas)
                outcome.moves.append(_move(image, topic, number, target))
    return outcome


def widen(
    image: ClusterImage, name: str, factor: int, *, share_machines: bool = False
) -> list[Changes]:
    """Ask for ``factor`` replicas of each of the topic's partitions, or as many as can be now.

    For topics that were made while there were fewer brokers.
    """
    topic = image.topic(name)
    load, candidates = replica_counts(image), sites_for_new(image)
    wishes = []
    for number in range(len(topic.partitions)):
        replicas = settled(image, topic, number)
        target = wider(image, replicas, factor, candidates, load, share_machines=share_machines)
        if target != replicas:
            wishes.append(asked(image, topic, number, target))
    return wishes


def wider(
    image: ClusterImage,
    replicas: Replicas,
    factor: int,
    candidates: list[Site],
    load: Counter[NodeId],
    *,
    share_machines: bool,
) -> Replicas:
    """The replicas and others behind them, up to ``factor``; what they add is added to ``load``."""
    target = replicas
    safe = candidates if share_machines else safe_beside(image, replicas, candidates)
    while len(target) < factor:
        beside = [site_of(image, node) for node in target]
        site = best_site(safe, beside, load, share_machines=share_machines)
        if site is None:
            break
        target = (*target, site.node)
        load[site.node] += 1
    return target


def safe_beside(image: ClusterImage, replicas: Replicas, candidates: list[Site]) -> list[Site]:
    """Those of whom it is known that they share no machine with one that is away.

    Where a broker ran that is away is not known; but one that has a machine to itself is safe.
    """
    if any(node not in image.brokers and node not in image.drains for node in replicas):
        return [site for site in candidates if site.machine is None]
    return candidates


def replica_counts(image: ClusterImage) -> Counter[NodeId]:
    """How many partitions each broker has once all moves are done; brokers that hold none too."""
    counts: Counter[NodeId] = Counter(dict.fromkeys(image.brokers, 0))
    for topic in image.topics.values():
        for number in range(len(topic.partitions)):
            counts.update(settled(image, topic, number))
    return counts


def site_of(image: ClusterImage, node: NodeId) -> Site:
    """Where a broker stands; of one that is not there, nothing is known."""
    broker = image.brokers.get(node)
    return broker.site if broker else Site(node)


def _elsewhere(
    image: ClusterImage,
    replicas: Replicas,
    candidates: list[Site],
    load: Counter[NodeId],
    share_machines: bool,
) -> Replicas:
    """The same replicas in the same order, each on a drained node replaced where it can be."""
    candidates = candidates if share_machines else safe_beside(image, replicas, candidates)
    target = list(replicas)
    for at, node in enumerate(replicas):
        if node in image.drains:
            beside = [site_of(image, each) for each in target if each != node]
            site = best_site(candidates, beside, load, share_machines=share_machines)
            if site is not None:
                target[at] = site.node
    return tuple(target)


def _move(image: ClusterImage, topic: TopicImage, number: int, target: Replicas) -> Changes:
    """Void once the drains it is for are lifted."""
    drains = {keys.drain(node): version for node, version in image.drains.items()}
    return asked(image, topic, number, target).guarded(drains)
