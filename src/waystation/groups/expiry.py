"""Which offsets are too old to be kept, looked for a little at a time.

The offsets of a group without members are kept for ``offsets.retention.minutes`` after the last
one left, and those of partitions that nobody subscribes to, or of programs that only store their
offsets here, as long after their commit.  A time that a client asked for goes before both.  The
offsets of a group that topics wait for, because it archives them, are always kept.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from waystation.groups.offsets import Offsets, Position
from waystation.groups.records import NEVER, OffsetForgotten
from waystation.model.offsets import Millis

MILLIS_PER_MINUTE = 60_000
_SLICE = 10_000


class Retention(NamedTuple):
    """From when on the offsets of a group grow old, and which never do."""

    since: Millis | None = None
    """``None``: each from its own commit."""
    is_read: Callable[[str], bool] | None = None
    """Whether a member reads the topic, so that its offsets stay."""


def expired(
    offsets: Offsets, group_id: str, retention: Retention, now: Millis, kept_ms: int
) -> list[OffsetForgotten]:
    """What to forget of the group's offsets."""
    if group_id not in offsets or not _may_expire(offsets, group_id, retention, now, kept_ms):
        return []
    return [
        OffsetForgotten(group_id, position.topic, position.partition)
        for position in offsets.of_group(group_id)
        if _is_over(position, retention, now, kept_ms)
        and (retention.is_read is None or not retention.is_read(position.topic))
    ]


def _may_expire(
    offsets: Offsets, group_id: str, retention: Retention, now: Millis, kept_ms: int
) -> bool:
    """Most groups have nothing to forget: found out without a look at each offset."""
    since = offsets.oldest_commit(group_id) if retention.since is None else retention.since
    return now - since >= kept_ms or offsets.has_expiries(group_id)


def _is_over(position: Position, retention: Retention, now: Millis, kept_ms: int) -> bool:
    if position.expires_at != NEVER:
        return now >= position.expires_at
    since = position.committed_at if retention.since is None else retention.since
    return now - since >= kept_ms


class Round:
    """One look at all groups, in slices short enough for others to be served between them."""

    __slots__ = ("_left",)

    def __init__(self, group_ids: Iterable[str]) -> None:
        self._left = list(dict.fromkeys(group_ids))

    @property
    def is_over(self) -> bool:
        """Whether every group has been looked at."""
        return not self._left

    def slice(self, cost: Callable[[str], int]) -> list[str]:
        """The next groups to look at: few, if looking at them costs much."""
        taken, spent = [], 0
        while self._left and spent < _SLICE:
            group_id = self._left.pop()
            taken.append(group_id)
            spent += 1 + cost(group_id)
        return taken
