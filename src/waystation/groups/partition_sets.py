"""Sets of partitions, and the one form in which records and replies hold them.

``Partitions`` is sorted, so that equal sets are equal values; sets answer questions.
"""

from collections.abc import Iterable

from waystation.groups.records import Partitions
from waystation.model.ids import TopicId

PartitionOf = tuple[TopicId, int]


def flat(partitions: Partitions) -> set[PartitionOf]:
    """Every partition by itself."""
    return {(topic, index) for topic, indexes in partitions for index in indexes}


def grouped(partitions: Iterable[PartitionOf]) -> Partitions:
    """By topic, in the order that makes equal sets equal; repeated ones count once."""
    by_topic: dict[TopicId, set[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, set()).add(index)
    return ordered(by_topic)


def ordered(by_topic: dict[TopicId, set[int]]) -> Partitions:
    """The same for partitions that are gathered by topic already; empty topics are left out."""
    return tuple(
        (topic, tuple(sorted(by_topic[topic])))
        for topic in sorted(by_topic, key=_rank)
        if by_topic[topic]
    )


def size(partitions: Partitions) -> int:
    """How many there are."""
    return sum(len(indexes) for _, indexes in partitions)


def _rank(topic: TopicId) -> int:
    return topic.int
