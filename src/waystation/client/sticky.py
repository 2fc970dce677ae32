"""Assignors that keep what they can: balance first, then as few moves as possible.

Promises, beside those of ``assignors.py``:

1. balance: no partition could go from one member to another that has two fewer, not even by
   way of others; members that all subscribe to the same differ by one at most;
2. a balanced group that asks again gets the same answer;
3. when a member leaves, the others keep what they have; when one joins, they give up no more
   than it gets, as long as all subscribe to the same.

``cooperative-sticky`` also lets nobody read a partition that another still owns: it is held back
until the owner, who sees that it is not among his any more, has given it up and joined again.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from waystation.client.assignors import (
    Assigned,
    Subscriber,
    all_partitions,
    in_order,
    readers_of,
)
from waystation.model.ids import TopicPartition

__all__ = ["assign_cooperatively", "assign_sticky"]


def assign_sticky(members: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assigned:
    """Balance what there is, moving as little as possible of what members own."""
    members = in_order(members)  # whoever comes first in the broker's list has no advantage
    owned = _owned(members, partitions)
    readers = readers_of(members)
    wanted = all_partitions(readers, partitions)
    if all(len(readers[topic]) == len(members) for topic in readers if topic in partitions):
        assigned = _evenly(members, owned, wanted)
    else:
        assigned = _by_shifting(owned, wanted, readers)
    for mine in assigned.values():
        mine.sort()
    return assigned


def assign_cooperatively(members: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assigned:
    """As ``assign_sticky``, without what would go to one member while another owns it."""
    owners: dict[TopicPartition, set[str]] = {}
    for one in members:
        for where in one.owned:
            owners.setdefault(where, set()).add(one.member_id)
    return {
        member: [where for where in mine if member in owners.get(where, (member,))]
        for member, mine in assign_sticky(members, partitions).items()
    }


def _owned(members: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assigned:
    """What each member may keep: of several who claim a partition, the latest generation's.

    If that is not one either, something went wrong before, and nobody keeps it.
    """
    claims: dict[TopicPartition, list[Subscriber]] = {}
    for one in members:
        for where in dict.fromkeys(one.owned):
            if where.topic in one.topics and where.partition < partitions.get(where.topic, 0):
                claims.setdefault(where, []).append(one)
    kept: Assigned = {one.member_id: [] for one in members}
    for where, claimants in sorted(claims.items()):
        newest = max(one.generation for one in claimants)
        latest = [one for one in claimants if one.generation == newest]
        if len(latest) == 1:
            kept[latest[0].member_id].append(where)
    return kept


# --- all subscribe to the same ----------------------------------------------------------------


def _evenly(
    members: Sequence[Subscriber], owned: Assigned, wanted: Sequence[TopicPartition]
) -> Assigned:
    """Everyone gets the same number, some one more: those first who have it already."""
    each, more = divmod(len(wanted), len(members))
    by_wealth = sorted(members, key=lambda one: -len(owned[one.member_id]))
    shares = {one.member_id: each + (place < more) for place, one in enumerate(by_wealth)}
    assigned = {member: owned[member][:share] for member, share in shares.items()}
    taken = {where for mine in assigned.values() for where in mine}
    free = iter([where for where in wanted if where not in taken])
    for one in members:
        mine = assigned[one.member_id]
        while len(mine) < shares[one.member_id]:
            mine.append(next(free))
    return assigned


# --- subscriptions differ ---------------------------------------------------------------------


def _by_shifting(
    owned: Assigned, wanted: Sequence[TopicPartition], readers: Mapping[str, Sequence[str]]
) -> Assigned:
    """Give free partitions to who has least; then shift from who has most until nothing helps."""
    assigned = {member: list(mine) for member, mine in owned.items()}
    taken = {where for mine in assigned.values() for where in mine}
    free = [where for where in wanted if where not in taken]
    # What few can read is dealt out first, while everyone still has room.
    for where in sorted(free, key=lambda one: len(readers[one.topic])):
        poorest = min(readers[where.topic], key=lambda member: len(assigned[member]))
        assigned[poorest].append(where)
    while any(_shift(assigned, rich, readers) for rich in _richest_first(assigned)):
        pass  # each shift brings two members closer, so this ends
    return assigned


def _richest_first(assigned: Assigned) -> list[str]:
    return sorted(assigned, key=lambda member: -len(assigned[member]))


def _shift(assigned: Assigned, rich: str, readers: Mapping[str, Sequence[str]]) -> bool:
    """Move one partition from ``rich`` to who has two fewer, by way of others if need be."""
    came_from: dict[str, tuple[str, TopicPartition] | None] = {rich: None}
    seen: set[str] = set()
    line = deque([rich])
    while line:
        giver = line.popleft()
        for where in assigned[giver]:
            if where.topic in seen:
                continue
            seen.add(where.topic)
            for taker in readers[where.topic]:
                if taker not in came_from:
                    came_from[taker] = (giver, where)
                    line.append(taker)
    poorest = min(came_from, key=lambda member: len(assigned[member]))
    if len(assigned[rich]) - len(assigned[poorest]) < 2:
        return False
    taker = poorest
    while (step := came_from[taker]) is not None:
        giver, where = step
        assigned[giver].remove(where)
        assigned[taker].append(where)
        taker = giver
    return True
