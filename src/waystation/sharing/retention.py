"""What a topic may drop because its queues are done with it: ``retention.after.ack``.

A topic names the groups that must have settled a message before it may go.  Nothing goes on a
guess:

1. no group is named: nothing is deleted;
2. a group is named that has no position in the partition, for it has not begun or its state
   cannot be read: nothing is deleted;
3. otherwise everything before the lowest position may go.

A cap in bytes, off unless it is set, overrides the rule: then the oldest messages go although a
group has not settled them, and whoever is robbed is named, so that it can be warned of.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from waystation.model.offsets import Offset


class Droppable(NamedTuple):
    """Everything before ``before`` may be deleted; ``robbed`` groups had not settled all of it."""

    before: Offset
    robbed: tuple[str, ...] = ()


def settled_before(groups: Iterable[str], positions: Mapping[str, Offset | None]) -> Offset | None:
    """The offset before which every named group has settled everything; ``None`` if unknown."""
    lowest: Offset | None = None
    for group_id in groups:
        position = positions.get(group_id)
        if position is None or position < 0:
            return None
        lowest = position if lowest is None else min(lowest, position)
    return lowest


def droppable(
    groups: Iterable[str],
    positions: Mapping[str, Offset | None],
    log_start: Offset,
    over_cap_before: Offset | None = None,
) -> Droppable:
    """What may be deleted of a partition.

    ``over_cap_before`` is where the newest bytes begin that fit under the cap; ``None`` without
    a cap, or where all fit.
    """
    named = tuple(dict.fromkeys(groups))
    settled = settled_before(named, positions)
    before = max(log_start, settled if settled is not None else log_start)
    if over_cap_before is None or over_cap_before <= before:
        return Droppable(before)
    robbed = tuple(
        group_id
        for group_id in named
        if (position := positions.get(group_id)) is None or position < over_cap_before
    )
    return Droppable(over_cap_before, robbed)
