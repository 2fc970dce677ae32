"""The cluster as a client sees it, in the words in which moves are planned.

Versions are not known to clients, so nothing is written by such an image: plans are handed to
a broker, which checks them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import (
    BrokerImage,
    PartitionImage,
    ReassignmentImage,
    TopicImage,
)
from waystation.model.ids import NodeId, PartitionEpoch, TopicId

if TYPE_CHECKING:
    from waystation.client.admin import Admin
    from waystation.client.cluster_descriptions import ClusterStatus
    from waystation.client.descriptions import TopicDescription

__all__ = ["asked_image", "shares_machines"]

_UNKNOWN = 0


async def asked_image(admin: "Admin") -> ClusterImage:
    """Brokers, topics, moves and drains, as they are now."""
    status = await admin.cluster_status(disks=False)
    topics = {one.name: _topic(one) for one in await admin.list_topics(internal=True)}
    return ClusterImage(
        revision=status.revision,
        cluster_id=status.cluster_id,
        brokers=_brokers(status),
        topics=topics,
        topics_by_id={one.id: one for one in topics.values()},
        reassignments=_moves(status, topics),
        drains={one.node: _UNKNOWN for one in status.brokers if one.draining},
    )


async def shares_machines(admin: "Admin", image: ClusterImage) -> bool:
    """Whether replicas of one partition may be on one machine."""
    options = await admin.describe_configs(broker=min(image.brokers))
    found = options.get("replicas.share.machine")
    return found is not None and found.value == "true"


def _brokers(status: "ClusterStatus") -> Mapping[NodeId, BrokerImage]:
    return {
        one.node: BrokerImage(
            one.node,
            one.epoch,
            one.address.host,
            one.address.port,
            one.rack,
            _UNKNOWN,
            one.machine,
            one.clean,
            one.features,
        )
        for one in status.brokers
        if one.address is not None and not one.leaving
    }


def _topic(one: "TopicDescription") -> TopicImage:
    partitions = tuple(
        PartitionImage(
            each.replicas,
            each.leader if each.leader >= 0 else None,
            each.epoch,
            each.in_sync,
            (),
            PartitionEpoch(_UNKNOWN),
            _UNKNOWN,
        )
        for each in one.partitions
    )
    return TopicImage(one.name, one.id, partitions, _UNKNOWN)


def _moves(
    status: "ClusterStatus", topics: Mapping[str, TopicImage]
) -> dict[TopicId, dict[int, ReassignmentImage]]:
    found: dict[TopicId, dict[int, ReassignmentImage]] = {}
    for one in status.reassignments:
        name, number = one.partition
        if name in topics:
            some = found.setdefault(topics[name].id, {})
            some[number] = ReassignmentImage(one.target, one.replicas, _UNKNOWN)
    return found
