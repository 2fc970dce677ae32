"""What a change of the cluster asks of one broker.

Comparing two images costs one look per topic; only topics that differ are looked into.  A
broker that carries out the duties between every two images it sees, drops first, holds exactly
the partitions that the last image assigns to it, each with its last state.
"""

from typing import NamedTuple

from waystation.cluster.effective import replication_factor
from waystation.cluster.image import ClusterImage
from waystation.cluster.keys import EVERY_BROKER
from waystation.cluster.parts import PartitionImage
from waystation.model.ids import NodeId, TopicId, TopicPartition


class Duty(NamedTuple):
    """One partition to hold as its state says, or to drop."""

    name: TopicPartition
    topic_id: TopicId
    state: PartitionImage


class Duties(NamedTuple):
    """What to do, in this order."""

    drop: tuple[Duty, ...]
    hold: tuple[Duty, ...]
    reconfigure: tuple[str, ...]


def duties(before: ClusterImage, after: ClusterImage, node: NodeId) -> Duties:
    """What ``node`` must do to get from one image to the other.

    ``hold`` has new partitions and those whose state changed, ``reconfigure`` the topics whose
    options may have.
    """
    drop: list[Duty] = []
    hold: list[Duty] = []
    for topic_id, old in before.topics_by_id.items():
        if after.topics_by_id.get(topic_id) is not old:
            kept = _held(after, topic_id, node)
            was = _held(before, topic_id, node)
            drop += [duty for number, duty in was.items() if number not in kept]
    for topic_id, new in after.topics_by_id.items():
        if before.topics_by_id.get(topic_id) is not new:
            was = _held(before, topic_id, node)
            now = _held(after, topic_id, node)
            hold += [duty for number, duty in now.items() if was.get(number) != duty]
    return Duties(tuple(drop), tuple(hold), _reconfigured(before, after, node))


def _held(image: ClusterImage, topic_id: TopicId, node: NodeId) -> dict[int, Duty]:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        return {}
    return {
        number: Duty(TopicPartition(topic.name, number), topic.id, state)
        for number, state in enumerate(topic.partitions)
        if node in state.replicas
    }


def _reconfigured(before: ClusterImage, after: ClusterImage, node: NodeId) -> tuple[str, ...]:
    for name in (EVERY_BROKER, str(node)):
        if before.broker_options(name) != after.broker_options(name):
            return tuple(after.topics)
    return tuple(
        name
        for name in after.topics
        if before.topic_configs.get(name) is not after.topic_configs.get(name)
        or _grew(before, after, name)
    )


def _grew(before: ClusterImage, after: ClusterImage, name: str) -> bool:
    """Whether it has more or fewer replicas, on which a default hangs (``effective.py``)."""
    was, now = before.topics.get(name), after.topics[name]
    if was is None:
        return False
    moves = before.reassignments.get(now.id), after.reassignments.get(now.id)
    if was is now and moves[0] is moves[1]:
        return False
    return replication_factor(before, was) != replication_factor(after, now)
