"""Which topic's messages wait where: ``orders.delay`` is the companion of ``orders``.

1. A topic has one companion, named after it, and a companion has none itself.
2. Both have the same number of partitions: what waits in partition 3 of the companion goes to
   partition 3 of the topic, so that keys stay where clients put them.
"""

from typing import Final

from waystation.model.errors import InvalidTopicError
from waystation.model.ids import TopicPartition
from waystation.model.topics import check_topic_name

__all__ = ["SUFFIX", "check_schedulable", "companion_of", "target_of", "target_partition"]

SUFFIX: Final = ".delay"
_NAME_CHARACTERS_MAX = 249


def companion_of(topic: str) -> str:
    """Where messages for ``topic`` wait; raises if it may not have such a place."""
    check_schedulable(topic)
    return topic + SUFFIX


def target_of(topic: str) -> str | None:
    """The topic whose companion this is by its name; ``None`` if it is no companion's name."""
    target = topic.removesuffix(SUFFIX)
    if target == topic or not target or _why_not(target) is not None:
        return None
    return target


def target_partition(partition: TopicPartition) -> TopicPartition | None:
    """Where what waits in ``partition`` is delivered; ``None`` if nothing waits there."""
    target = target_of(partition.topic)
    return None if target is None else TopicPartition(target, partition.partition)


def check_schedulable(topic: str) -> None:
    """Refuse a topic that cannot have a companion."""
    check_topic_name(topic)
    why = _why_not(topic)
    if why is not None:
        raise InvalidTopicError(f"the messages of {topic!r} cannot be scheduled: {why}")


def _why_not(topic: str) -> str | None:
    if topic.startswith("__"):
        return "it is an internal topic"
    if topic.endswith(SUFFIX):
        return f"a name that ends in {SUFFIX} is itself a place where messages wait"
    if topic in (".", ".."):
        return "it is no topic's name"
    room = _NAME_CHARACTERS_MAX - len(SUFFIX)
    if len(topic) > room:
        return f"with {SUFFIX} its name is too long; choose one of at most {room} characters"
    return None
