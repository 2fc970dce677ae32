"""Where partitions end that this broker has no replica of, as their leaders say."""

import asyncio
from collections.abc import Callable, Collection

from waystation.broker.peers import Peers
from waystation.cluster.image import ClusterImage
from waystation.cluster.views import find_shown
from waystation.messages.list_offsets import (
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from waystation.model.errors import PeerUnreachableError
from waystation.model.ids import NodeId, TopicPartition
from waystation.model.offsets import Offset

Ends = dict[TopicPartition, Offset]


class FarEnds:
    """Asks each leader once for all that it leads; what cannot be known is left out."""

    def __init__(self, peers: Peers, image: Callable[[], ClusterImage]) -> None:
        self._peers = peers
        self._image = image

    async def ask(self, names: Collection[TopicPartition]) -> Ends:
        """The ends of what can be read."""
        by_leader: dict[NodeId, list[TopicPartition]] = {}
        for name in names:
            leader = self._leader_of(name)
            if leader is not None:
                by_leader.setdefault(leader, []).append(name)
        ends: Ends = {}
        for found in await asyncio.gather(*(self._ask(*one) for one in by_leader.items())):
            ends.update(found)
        return ends

    def _leader_of(self, name: TopicPartition) -> NodeId | None:
        topic = find_shown(self._image(), name.topic)
        if topic is None or name.partition >= len(topic.partitions):
            return None
        return topic.partitions[name.partition].leader

    async def _ask(self, leader: NodeId, names: list[TopicPartition]) -> Ends:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for name in names:
            asked = ListOffsetsPartition(partition_index=name.partition, timestamp=LATEST)
            topics.setdefault(name.topic, []).append(asked)
        request = ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(name=topic, partitions=asked) for topic, asked in topics.items()
            ]
        )
        try:
            answer = await self._peers.ask(leader, request, ListOffsetsResponse)
        except PeerUnreachableError:
            return {}
        return {
            TopicPartition(topic.name, one.partition_index): Offset(one.offset)
            for topic in answer.topics
            for one in topic.partitions
            if not one.error_code and one.offset >= 0
        }
