"""The partitions this broker holds, found by topic name or topic id.

A topic id names one life of a topic: after a delete and a new creation under the same name, a
client with the old id is told so instead of being given the new topic's records.

Of what others hold, the client is told who leads it.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from waystation.cluster.image import ClusterImage
from waystation.model.errors import (
    IsViewError,
    NotLeaderError,
    UnknownTopicError,
    UnknownTopicIdError,
    WaystationError,
)
from waystation.model.ids import NO_TOPIC_ID, TopicId, TopicPartition
from waystation.partition.partition import Partition


class Replicas:
    """A registry; what a partition does is its own business."""

    __slots__ = ("_by_id", "_by_name", "_image", "_of_id", "keys_known")

    def __init__(self, image: Callable[[], ClusterImage] = ClusterImage) -> None:
        """``image`` tells of partitions that others hold."""
        self._image = image
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[TopicId, int], Partition] = {}
        self._of_id: Counter[TopicId] = Counter()
        self.keys_known = 0
        """Idempotency keys of all partitions, about: counted anew now and then, by others."""

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def of_topic(self, topic: str) -> list[Partition]:
        """The partitions of ``topic`` that this broker holds."""
        return [held for held in self._by_name.values() if held.name.topic == topic]

    def add(self, partition: Partition) -> None:
        """Hold ``partition`` from now on."""
        self._by_name[partition.name] = partition
        self._by_id[(partition.topic_id, partition.name.partition)] = partition
        self._of_id[partition.topic_id] += 1

    def remove(self, partition: Partition) -> None:
        """Hold it no longer."""
        del self._by_name[partition.name]
        del self._by_id[(partition.topic_id, partition.name.partition)]
        self._of_id[partition.topic_id] -= 1
        if not self._of_id[partition.topic_id]:
            del self._of_id[partition.topic_id]

    def find(self, topic: str, partition: int, topic_id: TopicId = NO_TOPIC_ID) -> Partition | None:
        """The partition, if this broker holds it; the id counts where no name is given.

        HOT: once per partition of every produce and fetch.
        """
        if topic:
            return self._by_name.get((topic, partition))
        return self._by_id.get((topic_id, partition))

    def get(self, topic: str, partition: int, topic_id: TopicId = NO_TOPIC_ID) -> Partition:
        """The partition, or the error that tells the client to look again."""
        found = self.find(topic, partition, topic_id)
        if found is None:
            raise self.unknown(topic, partition, topic_id)
        return found

    def get_source(self, topic: str, partition: int) -> Partition:
        """The partition that readers of a topic or view are answered from."""
        view = self._image().views.get(topic) if (topic, partition) not in self._by_name else None
        if view is not None:
            return self.get("", partition, view.on_id)
        return self.get(topic, partition)

    def find_source(self, topic: str, partition: int) -> Partition | None:
        """The same, if this broker holds it."""
        found = self._by_name.get((topic, partition))
        if found is None and (view := self._image().views.get(topic)) is not None:
            return self._by_id.get((view.on_id, partition))
        return found

    def unknown(self, topic: str, partition: int, topic_id: TopicId) -> WaystationError:
        """The error that tells a client to look again, and where; or that it is a view."""
        image = self._image()
        view = image.views.get(topic) if topic else image.views_by_id.get(topic_id)
        if view is not None:
            return IsViewError(view.name, view.on)
        known = image.topics.get(topic) if topic else image.topics_by_id.get(topic_id)
        if known is not None and 0 <= partition < len(known.partitions):
            state = known.partitions[partition]
            return NotLeaderError(
                TopicPartition(known.name, partition), state.leader, state.leader_epoch
            )
        if topic:
            name = TopicPartition(topic, partition)
            return UnknownTopicError(f"this node has no partition {name}")
        if known is not None or self._of_id[topic_id]:
            return UnknownTopicError(f"this node has no partition {partition} of {topic_id}")
        return UnknownTopicIdError(f"this node has no topic with id {topic_id}")
