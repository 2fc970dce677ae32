"""How a cluster is founded, how brokers join it, and who decides in it.

A registration and the controller's office hang on their owner's lease.  Their epochs do not:
each comes from a counter that outlives the lease, so an epoch is never given twice and a
process that was paused through the end of its lease is known by its old one.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from waystation.cluster import keys
from waystation.cluster.changes import ABSENT, Changes
from waystation.cluster.image import ClusterImage
from waystation.cluster.in_sync_changes import Sets, led_by, successor
from waystation.cluster.parts import PartitionImage, TopicImage
from waystation.cluster.policies import PolicyOf
from waystation.cluster.values import (
    BrokerValue,
    ClusterValue,
    ControllerValue,
    CounterValue,
    PartitionValue,
    encode,
)
from waystation.model.errors import DuplicateBrokerError
from waystation.model.ids import BrokerEpoch, NodeId, ProducerId

PRODUCER_ID_BLOCK = 1_000

_NO_FEATURES: dict[str, int] = {}


def found_cluster(cluster_id: str) -> Changes:
    """Give a new store its cluster id; void if somebody was first."""
    value = encode(ClusterValue(id=cluster_id))
    return Changes(compares={keys.CLUSTER: ABSENT}, puts={keys.CLUSTER: value})


def register(
    image: ClusterImage,
    node: NodeId,
    host: str,
    port: int,
    rack: str | None = None,
    *,
    machine: str | None = None,
    clean: bool = False,
    features: Mapping[str, int] = _NO_FEATURES,
) -> tuple[BrokerEpoch, Changes]:
    """A new incarnation of ``node``, under a broker epoch that no other ever had.

    Where others decide too, ``end_last_life`` is written first.
    """
    there = image.brokers.get(node)
    if there is not None:
        raise DuplicateBrokerError(
            f"broker {node} is registered already, at {there.host}:{there.port}: give this one "
            "another node id, or wait until the lease of the other has ended"
        )
    epoch, counting = _count(image, keys.BROKER_EPOCHS)
    value = BrokerValue(
        epoch=BrokerEpoch(epoch),
        host=host,
        port=port,
        rack=rack,
        machine=machine,
        clean=clean,
        features=dict(features),
    )
    return BrokerEpoch(epoch), Changes(
        compares={**counting.compares, keys.broker(node): ABSENT},
        puts={**counting.puts, keys.broker(node): encode(value)},
        leased=[keys.broker(node)],
    )


class Condition(NamedTuple):
    """What a node's last life left it: how it stopped, and which logs lie on its disks.

    ``held`` tells whether there is a log of a topic's partition; ``renewed``, whether one of the
    disks is not the one that was there before.
    """

    clean: bool
    held: Callable[[TopicImage, int], bool] = lambda topic, number: True
    renewed: bool = False


def end_last_life(
    image: ClusterImage, node: NodeId, policy: PolicyOf, condition: Condition
) -> list[Changes]:
    """What must be written before ``node`` registers anew, so that it is taken for what it is.

    It leads nothing of what its last life led: only an election, under a new epoch, lets it lead
    again.  If its stop was not clean and the topic's records were only in memory, or if it has no
    log, it may lack some, and leaves both sets unless nobody else is in them.  If the log may have
    been on a disk that is gone, it leaves them even so: of the others, some may have most of it,
    and an operator decides whether they shall lead.

    Void once it is registered; decide again on a newer image until there is nothing left, then
    ``register``.
    """
    return [
        Changes(
            compares={key: partition.version, keys.broker(node): ABSENT}, puts={key: encode(state)}
        )
        for topic in image.topics.values()
        for number, partition in enumerate(topic.partitions)
        if node == partition.leader or node in partition.holders
        for key in (keys.partition(topic.id, number),)
        for state in _without(partition, node, _loss(condition, topic, number, policy))
    ]


class _Loss(IntEnum):
    """How much a node may lack of what it should hold."""

    NOTHING = 0
    SOME = 1
    ALL = 2


def _loss(condition: Condition, topic: TopicImage, number: int, policy: PolicyOf) -> _Loss:
    if not condition.held(topic, number):
        return _Loss.ALL if condition.renewed else _Loss.SOME
    forgotten = not condition.clean and policy(topic.name).memory
    return _Loss.SOME if forgotten else _Loss.NOTHING


def is_alone(image: ClusterImage, node: NodeId) -> bool:
    """Whether nobody but ``node`` has, or may get, anything of what there is."""
    return (
        not any(other != node for other in image.brokers)
        and not image.reassignments
        and all(
            partition.replicas == (node,)
            for topic in image.topics.values()
            for partition in topic.partitions
        )
    )


def _without(partition: PartitionImage, node: NodeId, loss: _Loss) -> Iterator[PartitionValue]:
    """The partition's state after the last life of ``node``, if that changes anything."""
    sets = Sets(partition.in_sync, partition.eligible)
    others = partition.replicas if loss is _Loss.ALL else partition.holders
    if loss and node in partition.holders and any(each != node for each in others):
        sets = Sets(*(tuple(each for each in some if each != node) for some in sets))
    if partition.leader == node:
        yield led_by(partition, None, sets)
    elif sets != (partition.in_sync, partition.eligible):
        yield successor(partition, sets)


def claim_controller(image: ClusterImage, node: NodeId) -> Changes:
    """Let ``node`` decide, under a new controller epoch; void if somebody does already."""
    epoch, counting = _count(image, keys.CONTROLLER_EPOCHS)
    value = encode(ControllerValue(node=node, epoch=epoch))
    return Changes(
        compares={**counting.compares, keys.CONTROLLER: ABSENT},
        puts={**counting.puts, keys.CONTROLLER: value},
        leased=[keys.CONTROLLER],
    )


def take_producer_ids(image: ClusterImage, count: int = PRODUCER_ID_BLOCK) -> tuple[range, Changes]:
    """A block of producer ids that nobody else is ever given, once ``changes`` are stored."""
    first, counting = _count(image, keys.PRODUCER_IDS, count)
    return range(ProducerId(first), ProducerId(first + count)), counting


def _count(image: ClusterImage, key: str, count: int = 1) -> tuple[int, Changes]:
    counter = image.counter(key)
    value = encode(CounterValue(next=counter.next + count))
    return counter.next, Changes(compares={key: counter.version}, puts={key: value})
