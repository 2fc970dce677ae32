"""Which partitions are done with a redrive, as their leaders say: here, or on other brokers."""

import asyncio
from collections.abc import Callable, Sequence

from waystation.broker.peers import Peers
from waystation.cluster.image import ClusterImage
from waystation.messages.describe_redrive import DescribeRedriveRequest, DescribeRedriveResponse
from waystation.model.errors import PeerUnreachableError
from waystation.model.ids import NodeId, TopicPartition
from waystation.sharing.redrive import RUNNING

__all__ = ["FarRedrives"]


class FarRedrives:
    """Asks the leaders; of whom nothing is heard, nothing is known."""

    def __init__(self, peers: Peers, image: Callable[[], ClusterImage]) -> None:
        self._peers, self._image = peers, image

    async def done(self, names: Sequence[TopicPartition], redrive_id: str) -> list[int]:
        """The partitions that have carried the order out, or given it up."""
        told = await asyncio.gather(*(self._is_done(one, redrive_id) for one in names))
        return [name.partition for name, is_done in zip(names, told, strict=True) if is_done]

    async def _is_done(self, name: TopicPartition, redrive_id: str) -> bool:
        leader = self._leader_of(name)
        if leader is None:
            return False
        request = DescribeRedriveRequest(topic=name.topic, partition=name.partition, limit=1)
        try:
            answer = await self._peers.ask(leader, request, DescribeRedriveResponse)
        except PeerUnreachableError:
            return False
        known = answer.redrive
        return not answer.error_code and known.redrive_id == redrive_id and known.state != RUNNING

    def _leader_of(self, name: TopicPartition) -> NodeId | None:
        topic = self._image().topics.get(name.topic)
        if topic is None or name.partition >= len(topic.partitions):
            return None
        return topic.partitions[name.partition].leader
