"""Which replica stands nearest to a reader (KIP-392).

A reader that names its rack is sent to a replica there, if the leader stands elsewhere: one that
is in sync, is registered, and has what is to be read next; of several the one that has most.
"""

from waystation.broker.fetching import NOBODY, Nearer
from waystation.cluster.image import ClusterImage
from waystation.model.ids import NodeId
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition


def nearest(image: ClusterImage, node: NodeId, rack: str) -> Nearer:
    """How ``node`` directs a reader in ``rack``."""
    own = image.brokers.get(node)
    there = [one.id for one in image.brokers.values() if one.rack == rack]
    if not there or (own is not None and own.rack == rack):
        return _nobody

    def nearer(partition: Partition, offset: Offset) -> int:
        paces = partition.paces
        if paces is None:
            return NOBODY
        ends = [
            (end, -one)
            for one in there
            if one in partition.leadership.in_sync
            and (end := paces.end_of(one)) is not None
            and end >= offset
        ]
        return -max(ends)[1] if ends else NOBODY

    return nearer


def _nobody(_partition: Partition, _offset: Offset) -> int:
    return NOBODY
