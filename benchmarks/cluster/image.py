"""What a change costs the image of a large cluster, beside reading all of it anew.

Run: python benchmarks/cluster/image.py
"""

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple
from uuid import UUID

from waystation.cluster import keys
from waystation.cluster.image import ClusterImage
from waystation.cluster.values import PartitionValue, TopicValue, encode
from waystation.model.ids import LeaderEpoch, NodeId, TopicId

TOPICS, PARTITIONS, ROUNDS = 1_000, 10, 20
NODES = (NodeId(1), NodeId(2), NodeId(3))


class Change(NamedTuple):
    """As a watch tells it."""

    revision: int
    puts: dict[str, tuple[bytes, int]]
    deletes: tuple[str, ...] = ()


def topic(number: int) -> dict[str, tuple[bytes, int]]:
    """All items of one topic."""
    topic_id = TopicId(UUID(int=number + 1))
    state = PartitionValue(leader=NODES[0], leader_epoch=LeaderEpoch(0), in_sync=NODES)
    value = TopicValue(id=topic_id, replicas=(NODES,) * PARTITIONS)
    states = {keys.partition(topic_id, n): (encode(state), 1) for n in range(PARTITIONS)}
    return {**states, keys.topic(f"topic-{number}"): (encode(value), 1)}


def best_ms(work: Callable[[], object]) -> float:
    """The quickest of several rounds."""
    took = []
    for _ in range(ROUNDS):
        began = perf_counter()
        work()
        took.append(perf_counter() - began)
    return min(took) * 1e3


if __name__ == "__main__":
    items = {key: item for number in range(TOPICS) for key, item in topic(number).items()}
    image = ClusterImage.from_items(items, 1)
    one_topic = Change(2, topic(TOPICS))
    one_state = Change(2, dict([next(iter(topic(7).items()))]))
    print(f"{TOPICS} topics of {PARTITIONS} partitions, {len(items)} items")
    print(f"read all        {best_ms(lambda: ClusterImage.from_items(items, 1)):8.3f} ms")
    print(f"one new topic   {best_ms(lambda: image.apply(one_topic)):8.3f} ms")
    print(f"one new leader  {best_ms(lambda: image.apply(one_state)):8.3f} ms")
