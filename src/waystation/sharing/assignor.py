"""Who shall read which partition of a queue: many members may read one.

Each topic is shared out for itself.  With fewer members than partitions every partition has one
reader, with more every member has one partition; either way no share is larger than another by
more than one.  Promises:

1. each partition of a topic that somebody subscribes to has a reader, and each subscriber a
   partition;
2. whoever may keep what it had keeps it;
3. the same input gives the same result, in any order of members.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from typing import NamedTuple

from waystation.model.ids import TopicId
from waystation.sharing.group_records import Partitions


class Subscriber(NamedTuple):
    """A member, as far as sharing out looks at it."""

    member_id: str
    topics: frozenset[TopicId]
    held: Partitions
    """What was meant for it so far; it may name partitions that are gone."""


def share_out(
    members: Sequence[Subscriber], counts: Mapping[TopicId, Sequence[int]]
) -> dict[str, Partitions]:
    """What each member shall read; ``counts`` names the partitions of every topic."""
    members = sorted(members, key=lambda member: member.member_id)
    held = {
        (member.member_id, topic): list(indexes)
        for member in members
        for topic, indexes in member.held
    }
    shares: dict[str, dict[TopicId, list[int]]] = {member.member_id: {} for member in members}
    load = dict.fromkeys(shares, 0)
    for topic in sorted(counts, key=lambda topic: topic.int):
        readers = [member.member_id for member in members if topic in member.topics]
        partitions = list(counts[topic])
        if not readers or not partitions:
            continue
        had = {reader: held.get((reader, topic), []) for reader in readers}
        share = _one_reader_each if len(readers) <= len(partitions) else _one_partition_each
        for reader, indexes in share(readers, partitions, had, load).items():
            shares[reader][topic] = indexes
            load[reader] += len(indexes)
    return {
        member_id: tuple(
            (topic, tuple(sorted(by_topic[topic])))
            for topic in sorted(by_topic, key=lambda topic: topic.int)
            if by_topic[topic]
        )
        for member_id, by_topic in shares.items()
    }


def _one_reader_each(
    readers: Sequence[str],
    partitions: Sequence[int],
    had: Mapping[str, Sequence[int]],
    load: Mapping[str, int],
) -> dict[str, list[int]]:
    """At least as many partitions as readers: each partition goes to one of them."""
    least, more = divmod(len(partitions), len(readers))
    free, shares = dict.fromkeys(partitions), {reader: list[int]() for reader in readers}
    for reader in readers:
        for index in had[reader]:
            quota = least + (more > 0)
            if index in free and len(shares[reader]) < quota:
                shares[reader].append(index)
                del free[index]
                more -= len(shares[reader]) > least
    poorest = [(len(shares[one]), load[one], place) for place, one in enumerate(readers)]
    heapify(poorest)
    for index in free:
        count, loaded, place = poorest[0]
        shares[readers[place]].append(index)
        heapreplace(poorest, (count + 1, loaded, place))
    return shares


def _one_partition_each(
    readers: Sequence[str],
    partitions: Sequence[int],
    had: Mapping[str, Sequence[int]],
    load: Mapping[str, int],
) -> dict[str, list[int]]:
    """More readers than partitions: each reader goes to one of them."""
    least, more = divmod(len(readers), len(partitions))
    crowd, shares = dict.fromkeys(partitions, 0), dict[str, list[int]]()
    for reader in readers:
        for index in had[reader]:
            if index in crowd and crowd[index] < least + (more > 0):
                shares[reader] = [index]
                crowd[index] += 1
                more -= crowd[index] > least
                break
    emptiest = [(count, index) for index, count in crowd.items()]
    heapify(emptiest)
    for reader in readers:
        if reader not in shares:
            count, index = emptiest[0]
            shares[reader] = [index]
            heapreplace(emptiest, (count + 1, index))
    return shares
