"""How a cluster is founded, how brokers join it, and who decides in it.

A registration and the controller's office hang on their owner's lease.  Their epochs do not:
each comes from a counter that outlives the lease, so an epoch is never given twice and a
process that was paused through the end of its lease is known by its old one.
"""

from waystation.cluster import keys
from waystation.cluster.changes import ABSENT, Changes
from waystation.cluster.image import ClusterImage
from waystation.cluster.values import (
    BrokerValue,
    ClusterValue,
    ControllerValue,
    CounterValue,
    encode,
)
from waystation.model.errors import DuplicateBrokerError
from waystation.model.ids import BrokerEpoch, NodeId, ProducerId

PRODUCER_ID_BLOCK = 1_000


def found_cluster(cluster_id: str) -> Changes:
    """Give a new store its cluster id; void if somebody was first."""
    value = encode(ClusterValue(id=cluster_id))
    return Changes(compares={keys.CLUSTER: ABSENT}, puts={keys.CLUSTER: value})


def register(
    image: ClusterImage, node: NodeId, host: str, port: int, rack: str | None = None
) -> tuple[BrokerEpoch, Changes]:
    """A new incarnation of ``node``, under a broker epoch that no other ever had."""
    there = image.brokers.get(node)
    if there is not None:
        raise DuplicateBrokerError(
            f"broker {node} is registered already, at {there.host}:{there.port}: give this one "
            "another node id, or wait until the lease of the other has ended"
        )
    epoch, counting = _count(image, keys.BROKER_EPOCHS)
    value = BrokerValue(epoch=BrokerEpoch(epoch), host=host, port=port, rack=rack)
    return BrokerEpoch(epoch), Changes(
        compares={**counting.compares, keys.broker(node): ABSENT},
        puts={**counting.puts, keys.broker(node): encode(value)},
        leased=[keys.broker(node)],
    )


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
