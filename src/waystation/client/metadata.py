"""What a client knows of the cluster: brokers, topics, who leads what.

An image is immutable; each Metadata response makes the next one.  Two promises:

1. knowledge does not run back: of one topic id, a partition keeps its leader until a
   response shows the same or a newer leader epoch, or a refusal a newer one (KIP-951);
2. a topic that was deleted and made anew has another id, and everything is believed afresh.

Asking and waiting are done in ``router.py``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from waystation.client.bootstrap import Address
from waystation.client.errors import code_of
from waystation.messages.fetch import FetchResponse
from waystation.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from waystation.messages.produce import ProduceResponse
from waystation.model.errors import ErrorCode
from waystation.model.ids import NO_NODE, NO_TOPIC_ID, LeaderEpoch, NodeId, TopicId, TopicPartition

__all__ = ["BrokerView", "ClusterView", "PartitionView", "TopicView", "endpoints_in"]

Endpoints = ProduceResponse | FetchResponse


class BrokerView(NamedTuple):
    """A broker and where it can be reached."""

    node: NodeId
    address: Address
    rack: str | None = None


class PartitionView(NamedTuple):
    """Who leads a partition and who follows; a leader of -1 is none."""

    partition: int
    leader: NodeId
    epoch: LeaderEpoch
    replicas: tuple[NodeId, ...]
    in_sync: tuple[NodeId, ...]
    offline: tuple[NodeId, ...] = ()


class TopicView:
    """A topic's partitions in order, and those of them that have a leader."""

    __slots__ = ("id", "internal", "led", "name", "partitions")

    def __init__(
        self, name: str, id_: TopicId, internal: bool, partitions: tuple[PartitionView, ...]
    ) -> None:
        self.name, self.id, self.internal, self.partitions = name, id_, internal, partitions
        self.led = tuple(one.partition for one in partitions if one.leader != NO_NODE)

    def __eq__(self, other: object) -> bool:
        """Whether both say the same: a refresh that brought nothing new is noticed by it."""
        if not isinstance(other, TopicView):
            return NotImplemented
        return (self.name, self.id, self.internal, self.partitions) == (
            other.name,
            other.id,
            other.internal,
            other.partitions,
        )

    def __hash__(self) -> int:
        return hash((self.name, self.id, self.internal, self.partitions))


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One image of the cluster; ``refused`` holds the topics that came with an error instead."""

    cluster_id: str | None = None
    controller: NodeId = NO_NODE
    brokers: Mapping[NodeId, BrokerView] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    refused: Mapping[str, ErrorCode] = field(default_factory=dict)

    def leader(self, partition: TopicPartition) -> NodeId | None:
        """The broker to ask about ``partition``, if there is one and we know it."""
        found = self.find(partition)
        if found is None or found.leader not in self.brokers:
            return None
        return found.leader

    def find(self, partition: TopicPartition) -> PartitionView | None:
        """What is known of ``partition``."""
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def after(self, response: MetadataResponse) -> "ClusterView":
        """The image once ``response`` is known; topics it does not mention stay as they are."""
        topics, refused = dict(self.topics), dict(self.refused)
        for told in response.topics:
            name = told.name or ""
            refused.pop(name, None)
            if told.error_code in _HAS_PARTITIONS:
                topics[name] = _topic(told, topics.get(name))
            else:
                topics.pop(name, None)
                refused[name] = code_of(told.error_code)
        return replace(
            self,
            cluster_id=response.cluster_id or self.cluster_id,
            controller=NodeId(response.controller_id),
            brokers=_brokers(response) or self.brokers,
            topics=topics,
            refused=refused,
        )

    def led_by(
        self, where: TopicPartition, leader: int, epoch: int, at: Mapping[int, BrokerView]
    ) -> "ClusterView":
        """The image once a refusal has named the leader; itself if that is no news.

        ``at`` tells where leaders are whom refusals name.
        """
        topic, known = self.topics.get(where.topic), self.find(where)
        node = NodeId(leader)
        if topic is None or known is None or epoch <= known.epoch:
            return self
        broker = at.get(leader) or self.brokers.get(node)
        if broker is None:
            return self
        led = known._replace(leader=node, epoch=LeaderEpoch(epoch))
        partitions = list(topic.partitions)
        partitions[where.partition] = led
        moved = TopicView(topic.name, topic.id, topic.internal, tuple(partitions))
        return replace(
            self,
            brokers={**self.brokers, node: broker},
            topics={**self.topics, topic.name: moved},
        )

    def only(self, names: Iterable[str]) -> "ClusterView":
        """The image without topics that nobody follows any more."""
        keep = set(names)
        return replace(
            self,
            topics={name: topic for name, topic in self.topics.items() if name in keep},
            refused={name: code for name, code in self.refused.items() if name in keep},
        )


# A topic some of whose partitions have no leader still shows all of them.
_HAS_PARTITIONS = (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)


def endpoints_in(response: Endpoints) -> dict[int, BrokerView]:
    """Where those are whom the refusals in a response name as leaders."""
    return {
        told.node_id: BrokerView(NodeId(told.node_id), Address(told.host, told.port), told.rack)
        for told in response.node_endpoints
    }


def _brokers(response: MetadataResponse) -> dict[NodeId, BrokerView]:
    return {
        NodeId(told.node_id): BrokerView(
            NodeId(told.node_id), Address(told.host, told.port), told.rack
        )
        for told in response.brokers
    }


def _topic(told: MetadataResponseTopic, known: TopicView | None) -> TopicView:
    id_ = TopicId(told.topic_id)
    same = known is not None and known.id == id_ and id_ != NO_TOPIC_ID
    before = known.partitions if known is not None and same else ()
    in_order = sorted(told.partitions, key=lambda one: one.partition_index)
    partitions = tuple(_partition(one, before) for one in in_order)
    return TopicView(told.name or "", id_, told.is_internal, partitions)


def _partition(told: MetadataResponsePartition, before: tuple[PartitionView, ...]) -> PartitionView:
    view = PartitionView(
        told.partition_index,
        NodeId(told.leader_id),
        LeaderEpoch(told.leader_epoch),
        tuple(map(NodeId, told.replica_nodes)),
        tuple(map(NodeId, told.isr_nodes)),
        tuple(map(NodeId, told.offline_replicas)),
    )
    if told.partition_index < len(before):
        known = before[told.partition_index]
        if 0 <= view.epoch < known.epoch:
            return known
    return view
