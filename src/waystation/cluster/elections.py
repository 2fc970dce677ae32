"""Who leads a partition once its leader cannot.

1. A leader is chosen only among live replicas that hold everything committed: the in-sync set,
   then the eligible leaders.  If none lives, nobody leads: waiting loses nothing.
2. Every election has a new leader epoch, also if it elects the same node again: what a node
   led before it restarted is not what it leads after.
3. The preferred leader wins where it may, then the next in the order of the assignment.
"""

from collections.abc import Collection

from waystation.cluster import keys
from waystation.cluster.changes import Changes
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import PartitionImage
from waystation.cluster.values import PartitionValue, encode
from waystation.model.ids import LeaderEpoch, NodeId, PartitionEpoch


def elect(
    image: ClusterImage, live: Collection[NodeId], ended: Collection[NodeId] = ()
) -> list[Changes]:
    """New leaders for partitions whose leader is not ``live``, or whose term has ``ended``.

    One decision per partition, each void if the partition's state has changed meanwhile.  A
    node in ``ended`` restarted: it leads nothing until it is elected again, perhaps at once.
    """
    decisions = []
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            leader = partition.leader
            if leader is not None and leader in live and leader not in ended:
                continue
            elected = _elected(partition, live)
            if elected is not None:
                key = keys.partition(topic.id, number)
                decisions.append(
                    Changes(compares={key: partition.version}, puts={key: encode(elected)})
                )
    return decisions


def _elected(partition: PartitionImage, live: Collection[NodeId]) -> PartitionValue | None:
    """The partition's next state, or ``None`` if it stays without a leader."""
    leader = _first(partition.replicas, partition.in_sync, live)
    in_sync, eligible = partition.in_sync, partition.eligible
    if leader is None:
        leader = _first(partition.replicas, eligible, live)
        if leader is not None:
            # Of those in sync none lives, and only the chosen one is known to have it all.
            in_sync, eligible = (leader,), tuple(node for node in eligible if node != leader)
    if leader is None and partition.leader is None:
        return None
    return PartitionValue(
        leader=leader,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        in_sync=in_sync,
        eligible=eligible,
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
    )


def _first(
    order: Collection[NodeId], allowed: Collection[NodeId], live: Collection[NodeId]
) -> NodeId | None:
    return next((node for node in order if node in allowed and node in live), None)
