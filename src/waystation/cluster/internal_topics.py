"""How many replicas the cluster's own topics have.

They are made when somebody first needs them, maybe by a node that is still alone.  They begin with
as many replicas as can be apart then, and get more as brokers join, until there are as many as
their options ask for: a laptop's broker that grows into a cluster keeps its groups through the
death of the laptop.

1. Replicas are only ever added; what an operator assigned stays.
2. Who is named first changes where that spreads the work: first replicas are preferred leaders,
   and whoever leads a partition coordinates what belongs to it.
"""

from collections import Counter
from collections.abc import Mapping

from waystation.cluster.changes import Changes
from waystation.cluster.draining import replica_counts, wider
from waystation.cluster.image import ClusterImage
from waystation.cluster.placement import machine_of, sites_for_new
from waystation.cluster.reassignment import Replicas, asked, settled
from waystation.model.ids import NodeId


def factor_now(image: ClusterImage, wanted: int, *, share_machines: bool = False) -> int:
    """How many of ``wanted`` replicas can be apart at the moment; at least one."""
    sites = sites_for_new(image)
    places = len(sites) if share_machines else len({machine_of(site) for site in sites})
    return max(1, min(wanted, places))


def widened(
    image: ClusterImage, wanted: Mapping[str, int], room: int, *, share_machines: bool = False
) -> list[Changes]:
    """Ask for the replicas that are missing and can be had, for at most ``room`` partitions.

    A partition that nobody leads waits: there is nobody to copy from.  So does one that is on a
    drained node: it is to be moved first.
    """
    wishes: list[Changes] = []
    load, candidates = replica_counts(image), sites_for_new(image)
    for name, factor in wanted.items():
        topic = image.topics.get(name)
        if topic is None:
            continue
        all_replicas = [settled(image, topic, number) for number in range(len(topic.partitions))]
        first = Counter(replicas[0] for replicas in all_replicas)
        for number, replicas in enumerate(all_replicas):
            if len(replicas) >= factor or any(node in image.drains for node in replicas):
                continue
            if topic.partitions[number].leader not in image.brokers:
                continue
            target = wider(image, replicas, factor, candidates, load, share_machines=share_machines)
            if target != replicas and len(wishes) < room:
                target = _led_in_turn(target, first)
                wishes.append(asked(image, topic, number, target))
    return wishes


def _led_in_turn(target: Replicas, first: Counter[NodeId]) -> Replicas:
    """The same replicas, the one named first that is so the least often."""
    before = target[0]
    best = min(target, key=lambda node: (first[node] - (node == before), node != before))
    first[before] -= 1
    first[best] += 1
    return (best, *(node for node in target if node != best))
