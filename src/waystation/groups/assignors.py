"""Who shall read which partition: the server's two ways of sharing them out.

``uniform`` shares evenly and moves as little as it can: with equal subscriptions no member has
two partitions more than another, with different ones as near to that as subscriptions allow.
``shared_by_range`` gives each member the same stretch of every topic, so that partitions of
equal number, which hold equal keys, meet at one member.  Promises of both:

1. each partition of a topic that somebody subscribes to goes to exactly one of its subscribers;
2. the same input gives the same result, on every machine and in any order of members.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import NamedTuple

from waystation.groups.partition_sets import ordered
from waystation.groups.records import Partitions
from waystation.model.ids import TopicId


class Subscriber(NamedTuple):
    """A member, as far as sharing out looks at it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[TopicId]
    held: Partitions
    """What was meant for it so far; it may name partitions that are gone."""


Targets = dict[str, Partitions]
"""What each member shall read, by member id."""

Assignor = Callable[[Sequence[Subscriber], Mapping[TopicId, int]], Targets]
"""Takes the members and the partition counts of all topics they subscribe to."""


def uniform(members: Sequence[Subscriber], counts: Mapping[TopicId, int]) -> Targets:
    """Evenly, and as near to what was held as an even share allows."""
    members = sorted(members, key=attrgetter("member_id"))
    topics = sorted(counts, key=attrgetter("int"))
    if not members:
        return {}
    sharing = _Sharing(members, topics, counts)
    if all(member.topics == members[0].topics for member in members):
        sharing.level()
    else:
        sharing.hand_out()
        sharing.balance()
    return sharing.targets()


def shared_by_range(members: Sequence[Subscriber], counts: Mapping[TopicId, int]) -> Targets:
    """Each topic in one stretch per subscriber, the first ones being longer by one.

    Static members come first, in the order of their instance ids: one that returns under a new
    member id finds its old stretch.
    """
    members = sorted(members, key=_place_in_range)
    gathered: dict[str, dict[TopicId, set[int]]] = {member.member_id: {} for member in members}
    for topic, count in counts.items():
        subscribers = [member.member_id for member in members if topic in member.topics]
        start = 0
        for place, member_id in enumerate(subscribers):
            share = count // len(subscribers) + (place < count % len(subscribers))
            gathered[member_id][topic] = set(range(start, start + share))
            start += share
    return {member_id: ordered(by_topic) for member_id, by_topic in gathered.items()}


ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": shared_by_range}


def _place_in_range(member: Subscriber) -> tuple[bool, str, str]:
    return member.instance_id is None, member.instance_id or "", member.member_id


class _Sharing:
    """Partitions on their way from what was held to an even share.

    Members and topics are numbered by their place in the sorted lists: numbers are quick to
    hash and to compare, ids are not.
    """

    def __init__(
        self,
        members: Sequence[Subscriber],
        topics: Sequence[TopicId],
        counts: Mapping[TopicId, int],
    ) -> None:
        self._members = members
        self._topics = topics
        self._counts = [counts[topic] for topic in topics]
        places = {topic: place for place, topic in enumerate(topics)}
        self._wants = [
            [places[topic] for topic in topics if topic in member.topics] for member in members
        ]
        self._subscribers: list[list[int]] = [[] for _ in topics]
        for member, wanted in enumerate(self._wants):
            for topic in wanted:
                self._subscribers[topic].append(member)
        self._owner = [[-1] * count for count in self._counts]
        self._has: list[dict[int, list[int]]] = [{} for _ in members]
        self._load = [0] * len(members)
        self._keep_held(places)

    def targets(self) -> Targets:
        """What came out; members whose share stayed the same get the very value they held."""
        result = {}
        for place, member in enumerate(self._members):
            by_topic = {self._topics[t]: set(indexes) for t, indexes in self._has[place].items()}
            found = ordered(by_topic)
            result[member.member_id] = member.held if found == member.held else found
        return result

    def level(self) -> None:
        """Share out among members that all want the same.

        Everyone gets the least even share; those who already have more keep one more, as far
        as it goes.  What is free is dealt out in turns, so that a topic is spread over members.
        """
        free = self._free()
        least, more = divmod(len(free) + sum(self._load), len(self._members))
        for member in range(len(self._members)):
            quota = least
            if self._load[member] > least and more:
                quota, more = least + 1, more - 1
            while self._load[member] > quota:
                topic = max(self._has[member], key=lambda t: (len(self._has[member][t]), t))
                free.append((topic, self._take(member, topic)))
        free.sort()
        poorest = [(load, member) for member, load in enumerate(self._load) if load <= least]
        heapify(poorest)
        for topic, index in free:
            load, member = heappop(poorest)
            self._give(member, topic, index)
            if load < least:
                heappush(poorest, (load + 1, member))

    def hand_out(self) -> None:
        """Give each free partition to the subscriber with the least, hard cases first."""
        free = self._free()
        free.sort(key=lambda partition: (len(self._subscribers[partition[0]]), partition))
        for topic, index in free:
            if subscribers := self._subscribers[topic]:
                self._give(min(subscribers, key=self._load.__getitem__), topic, index)

    def balance(self) -> None:
        """Move partitions along chains of members until no chain makes loads more even.

        Whoever is reached from a member that found no chain cannot reach a poorer one either,
        so it is not searched again: shares are settled from the largest down.
        """
        settled: set[int] = set()
        while rich := [m for m in range(len(self._members)) if m not in settled]:
            richest = max(rich, key=lambda m: (self._load[m], -m))
            chain, reached = self._chain_down(richest, settled)
            if not chain:
                settled.update(reached)
            for giver, topic, taker in chain:
                self._give(taker, topic, self._take(giver, topic))

    def _chain_down(
        self, start: int, settled: set[int]
    ) -> tuple[list[tuple[int, int, int]], list[int]]:
        """The shortest chain of gifts from ``start`` to a member with at least two less, or none
        and everyone who was looked at.
        """
        came_by: dict[int, tuple[int, int] | None] = {start: None}
        topics_seen: set[int] = set()
        queue = deque([start])
        while queue:
            giver = queue.popleft()
            for topic in sorted(self._has[giver]):
                if topic in topics_seen:
                    continue
                topics_seen.add(topic)
                for taker in self._subscribers[topic]:
                    if taker in came_by or taker in settled:
                        continue
                    came_by[taker] = (giver, topic)
                    queue.append(taker)
                    if self._load[taker] <= self._load[start] - 2:
                        return _walk_back(came_by, taker), []
        return [], list(came_by)

    def _keep_held(self, places: Mapping[TopicId, int]) -> None:
        for member, subscriber in enumerate(self._members):
            for topic_id, indexes in subscriber.held:
                topic = places.get(topic_id)
                if topic is None or topic_id not in subscriber.topics:
                    continue
                for index in indexes:
                    if index < self._counts[topic] and self._owner[topic][index] < 0:
                        self._give(member, topic, index)

    def _free(self) -> list[tuple[int, int]]:
        return [
            (topic, index)
            for topic, owners in enumerate(self._owner)
            for index, owner in enumerate(owners)
            if owner < 0
        ]

    def _give(self, member: int, topic: int, index: int) -> None:
        self._owner[topic][index] = member
        self._has[member].setdefault(topic, []).append(index)
        self._load[member] += 1

    def _take(self, member: int, topic: int) -> int:
        indexes = self._has[member][topic]
        index = max(indexes)
        indexes.remove(index)
        if not indexes:
            del self._has[member][topic]
        self._owner[topic][index] = -1
        self._load[member] -= 1
        return index


def _walk_back(
    came_by: Mapping[int, tuple[int, int] | None], last: int
) -> list[tuple[int, int, int]]:
    chain = []
    while (step := came_by[last]) is not None:
        giver, topic = step
        chain.append((giver, topic, last))
        last = giver
    return chain
