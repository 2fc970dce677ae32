"""Which replicas partitions shall have, when somebody says which brokers or how many.

1. What need not move stays: a replica is copied only if its broker is not among those that were
   named, or if there are to be more of them.
2. New replicas go where they stand apart from the others, then where least is.
3. The order is kept, so the preferred leader changes only if it has to go.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from waystation.cluster.draining import replica_counts, site_of
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import Site
from waystation.cluster.placement import best_site, listed, sites_for_new
from waystation.cluster.reassignment import Replicas, settled
from waystation.model.errors import InvalidReplicationFactorError, UnknownBrokerError
from waystation.model.ids import NodeId, TopicPartition


def onto(
    image: ClusterImage,
    topics: Iterable[str],
    brokers: Collection[NodeId] | None = None,
    factor: int | None = None,
    *,
    share_machines: bool = False,
) -> dict[TopicPartition, Replicas]:
    """New replicas for those partitions of ``topics`` that need some.

    On ``brokers`` alone if they are given; as many as ``factor`` says, or as there are.
    """
    for node in brokers or ():
        if node not in image.brokers:
            raise UnknownBrokerError(
                f"there is no broker {node}; there are {listed(image.brokers)}"
            )
    candidates = [site for site in sites_for_new(image) if brokers is None or site.node in brokers]
    load = replica_counts(image)
    moves: dict[TopicPartition, Replicas] = {}
    for name in topics:
        topic = image.topic(name)
        for number in range(len(topic.partitions)):
            now, where = settled(image, topic, number), TopicPartition(name, number)
            kept = tuple(node for node in now if brokers is None or node in brokers)
            target = _filled(
                image, where, kept, factor or len(now), candidates, load, share_machines
            )
            if target != now:
                load.update(target)
                load.subtract(now)
                moves[where] = target
    return moves


def _filled(
    image: ClusterImage,
    partition: TopicPartition,
    kept: Replicas,
    factor: int,
    candidates: list[Site],
    load: Mapping[NodeId, int],
    share_machines: bool,
) -> Replicas:
    target = kept[:factor]
    counts = Counter(load)
    while len(target) < factor:
        beside = [site_of(image, node) for node in target]
        site = best_site(candidates, beside, counts, share_machines=share_machines)
        if site is None:
            raise InvalidReplicationFactorError(
                _too_few(partition, factor, len(target), candidates, share_machines)
            )
        target = (*target, site.node)
    return target


def _too_few(
    partition: TopicPartition,
    factor: int,
    found: int,
    candidates: list[Site],
    share_machines: bool,
) -> str:
    """Why there are not as many replicas as were asked for, and what can be done about it."""
    among = listed(site.node for site in candidates) or "none"
    apart = "" if share_machines else ", on machines of their own"
    also = "" if share_machines else ", or allow several on a machine (replicas.share.machine)"
    return (
        f"{partition} is to have {factor} replicas, and of the brokers {among} only {found} can "
        f"hold one{apart}. Remedy: ask for {found} or less, name or start more brokers{also}"
    )
