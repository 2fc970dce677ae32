"""Who is in sync, and who else may lead, after a change (KIP-966).

1. Every member of either set holds everything committed.
2. While fewer than ``min.insync.replicas`` are in sync, nothing new commits; who leaves the set
   then misses nothing, and stays ``eligible`` to lead.  Once enough are in sync again, records
   commit that the others lack: nobody stays eligible.
3. A leader's high watermark therefore stands still while the *written* state names eligible
   leaders, whatever ``min.insync.replicas`` has become; it proposes a state without them first.
4. A follower comes in only as the incarnation whose fetches were counted: its registration is
   compared in the same transaction, so that one which restarted meanwhile stays out.
5. A leader whose own registration is gone changes nothing.
6. Who cannot use its copy any more, since the disk failed, leaves both sets by itself, and leads
   no longer, unless nobody else is in sync.

When to ask for a change is for ``replication/`` to say; elections are in ``elections.py``.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from waystation.cluster import keys
from waystation.cluster.changes import Changes
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import PartitionImage, TopicImage
from waystation.cluster.values import PartitionValue, encode
from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch

Nodes = tuple[NodeId, ...]


class Sets(NamedTuple):
    """The two sets of a partition, each in the order of the assignment."""

    in_sync: Nodes
    eligible: Nodes


class Proposal(NamedTuple):
    """The sets that a leader asks for; they are so once ``changes`` are stored."""

    in_sync: Nodes
    eligible: Nodes
    changes: Changes


def sets_after(partition: PartitionImage, in_sync: Collection[NodeId], min_insync: int) -> Sets:
    """Both sets, once ``in_sync`` are the members."""
    members = tuple(node for node in partition.replicas if node in in_sync)
    if len(members) >= min_insync:
        return Sets(members, ())
    held = {*partition.holders}.difference(members)
    return Sets(members, tuple(node for node in partition.replicas if node in held))


def propose(
    image: ClusterImage,
    topic: TopicImage,
    number: int,
    wanted: Collection[NodeId],
    lives: Mapping[NodeId, BrokerEpoch],
    min_insync: int,
) -> Proposal | None:
    """What the leader of a partition writes to have ``wanted`` in sync; ``None``: nothing to do.

    ``lives`` are the broker epochs that followers' fetches carried.  A newcomer that is
    registered under another one, wants to stop, or holds no replica is left out; the leader
    itself always stays.
    """
    partition = topic.partitions[number]
    leader = partition.leader
    if leader is None or leader not in image.brokers:
        return None
    kept = {leader, *(node for node in partition.in_sync if node in wanted)}
    added = [
        node
        for node in partition.replicas
        if node in wanted and node not in partition.in_sync and _may_join(image, node, lives)
    ]
    sets = sets_after(partition, kept.union(added), min_insync)
    if sets == (partition.in_sync, partition.eligible):
        return None
    key = keys.partition(topic.id, number)
    registered = {keys.broker(node): image.brokers[node].version for node in (leader, *added)}
    state = encode(successor(partition, sets))
    changes = Changes(compares={key: partition.version, **registered}, puts={key: state})
    return Proposal(*sets, changes)


def give_up(
    image: ClusterImage, topic: TopicImage, number: int, node: NodeId, min_insync: int
) -> Changes | None:
    """What ``node`` writes because its copy is out of reach; ``None``: nothing, or nobody is left.

    Where it led, nobody does until one of the others is elected.
    """
    partition = topic.partitions[number]
    others = [each for each in partition.in_sync if each != node]
    if node not in partition.holders or not others or node not in image.brokers:
        return None
    in_sync, eligible = sets_after(partition, others, min_insync)
    sets = Sets(in_sync, tuple(each for each in eligible if each != node))
    led = partition.leader == node
    state = led_by(partition, None, sets) if led else successor(partition, sets)
    key = keys.partition(topic.id, number)
    compares = {key: partition.version, keys.broker(node): image.brokers[node].version}
    return Changes(compares=compares, puts={key: encode(state)})


def successor(partition: PartitionImage, sets: Sets) -> PartitionValue:
    """The partition's next state under the same leader."""
    return PartitionValue(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        in_sync=sets.in_sync,
        eligible=sets.eligible,
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
        unclean_epoch=partition.unclean_epoch,
    )


def led_by(
    partition: PartitionImage, leader: NodeId | None, sets: Sets, *, unclean: bool = False
) -> PartitionValue:
    """The partition's next state under ``leader``: a new leader epoch, whoever it is."""
    epoch = LeaderEpoch(partition.leader_epoch + 1)
    return PartitionValue(
        leader=leader,
        leader_epoch=epoch,
        in_sync=sets.in_sync,
        eligible=sets.eligible,
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
        unclean_epoch=epoch if unclean else partition.unclean_epoch,
    )


def _may_join(image: ClusterImage, node: NodeId, lives: Mapping[NodeId, BrokerEpoch]) -> bool:
    broker = image.brokers.get(node)
    return broker is not None and broker.epoch == lives.get(node) and not image.is_leaving(node)
