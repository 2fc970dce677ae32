"""How the leader of a classic group shares partitions out, as Kafka's clients do.

Each assignor is a function of what the members said and of how many partitions each topic
has; the same input gives the same answer on every machine.  Promises of all of them:

1. every partition of a subscribed topic goes to exactly one member that subscribes to it
   (``cooperative-sticky`` may hold one back until its owner has given it up);
2. a member gets nothing of a topic that it does not subscribe to.

``range`` gives each member a stretch of every topic, ``roundrobin`` deals partitions out one by
one; the two that keep what they can are in ``sticky.py``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

from waystation.model.ids import TopicPartition

__all__ = [
    "Assigned",
    "Assignor",
    "Subscriber",
    "all_partitions",
    "assign_by_range",
    "assign_round_robin",
    "in_order",
    "readers_of",
]


class Subscriber(NamedTuple):
    """A member as its leader sees it; what it owned, and in which generation, if it said so."""

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1


Assigned = dict[str, list[TopicPartition]]
"""What each member gets; members without partitions stand there too."""

Assignor = Callable[[Sequence[Subscriber], Mapping[str, int]], Assigned]
"""Takes the members and the number of partitions of each topic that exists."""


def in_order(members: Iterable[Subscriber]) -> list[Subscriber]:
    """Static members by their instance ids first, then the others: who returns keeps his place."""
    return sorted(members, key=lambda one: (one.instance_id is None, one.instance_id or one[0]))


def readers_of(members: Iterable[Subscriber]) -> dict[str, list[str]]:
    """The ids of each topic's subscribers, in order."""
    readers: dict[str, list[str]] = {}
    for one in in_order(members):
        for topic in dict.fromkeys(one.topics):
            readers.setdefault(topic, []).append(one.member_id)
    return readers


def all_partitions(topics: Iterable[str], partitions: Mapping[str, int]) -> list[TopicPartition]:
    """Every partition of those topics that exist, by topic and number."""
    return [
        TopicPartition(topic, number)
        for topic in sorted(topics)
        for number in range(partitions.get(topic, 0))
    ]


def assign_by_range(members: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assigned:
    """Of each topic a stretch per member, the first members one more where it does not divide.

    The same partition number of topics with the same subscribers goes to the same member.
    """
    assigned: Assigned = {one.member_id: [] for one in members}
    for topic, readers in sorted(readers_of(members).items()):
        each, more = divmod(partitions.get(topic, 0), len(readers))
        at = 0
        for place, reader in enumerate(readers):
            end = at + each + (place < more)
            assigned[reader] += [TopicPartition(topic, number) for number in range(at, end)]
            at = end
    return assigned


def assign_round_robin(members: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assigned:
    """All partitions one by one to the members in turn, passing over who does not read them."""
    assigned: Assigned = {one.member_id: [] for one in members}
    readers = {topic: frozenset(ids) for topic, ids in readers_of(members).items()}
    turns = cycle(one.member_id for one in in_order(members))
    for where in all_partitions(readers, partitions):
        taker = next(one for one in turns if one in readers[where.topic])
        assigned[taker].append(where)
    return assigned
