"""What other brokers say of partitions, to one that hears nothing from the store itself.

A leader epoch is given by the store and never taken back.  Whoever speaks of a higher one than an
image has therefore speaks of what the store said later, however old that may be by now.  So

1. a word moves a partition forward, never back, and in whatever order words come, the highest
   epoch wins;
2. nobody leads by hearsay: a word can end a leadership, only the store begins one (``others``);
3. nothing may be written on the strength of a word: the corrected state keeps its old version, so
   that every change which compares it is refused.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import PartitionImage, TopicImage
from waystation.model.ids import LeaderEpoch, NodeId, TopicId

Place = tuple[TopicId, int]


class Word(NamedTuple):
    """Who leads a partition, under which epoch, and who is in sync: as somebody else heard it."""

    leader: NodeId | None
    epoch: LeaderEpoch
    in_sync: tuple[NodeId, ...] = ()


Words = Mapping[Place, Word]


def others(words: Words, node: NodeId) -> dict[Place, Word]:
    """The words by which others lead than ``node``, which may believe only those."""
    return {place: word for place, word in words.items() if word.leader != node}


def newer(image: ClusterImage, words: Words) -> dict[Place, Word]:
    """The words that tell something which the image does not say."""
    return {
        place: word
        for place, word in words.items()
        if (known := _state(image, place)) is not None and word.epoch > known.leader_epoch
    }


def corrected(image: ClusterImage, words: Words) -> ClusterImage:
    """The image with every word that is newer; itself if none is."""
    topics: dict[TopicId, TopicImage] = {}
    for (topic_id, number), word in newer(image, words).items():
        topic = topics.get(topic_id, image.topics_by_id[topic_id])
        states = list(topic.partitions)
        states[number] = states[number]._replace(
            leader=word.leader, leader_epoch=word.epoch, in_sync=word.in_sync
        )
        topics[topic_id] = topic._replace(partitions=tuple(states))
    if not topics:
        return image
    return replace(
        image,
        topics={**image.topics, **{one.name: one for one in topics.values()}},
        topics_by_id={**image.topics_by_id, **topics},
    )


def _state(image: ClusterImage, place: Place) -> PartitionImage | None:
    topic = image.topics_by_id.get(place[0])
    if topic is None or not 0 <= place[1] < len(topic.partitions):
        return None
    return topic.partitions[place[1]]
