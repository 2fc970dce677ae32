"""Where a reset moves the offsets of a group.

Whatever is asked for, a partition ends up at an offset that it holds, or at its end.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from waystation.client.group_descriptions import OffsetMove
from waystation.model.errors import InvalidRequestError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset

__all__ = ["By", "Ends", "ResetTo", "moment_of", "planned"]


class By(NamedTuple):
    """So many messages on, or back if negative."""

    messages: int


ResetTo = str | int | datetime | timedelta | By | Mapping[TopicPartition, int]
"""``"earliest"``, ``"latest"`` or ``"current"``; an offset; a time, or a duration before now: the
first message since; ``By(-100)``; or an offset for each partition."""

_WORDS = ("earliest", "latest", "current")


class Ends(NamedTuple):
    """What is known of a partition; ``since`` is the first offset at or after the moment asked."""

    committed: Offset | None
    start: Offset
    end: Offset
    since: Offset | None = None


def moment_of(to: ResetTo, now: Millis) -> Millis | None:
    """The moment that ``to`` means, if it means one."""
    if isinstance(to, datetime):
        return Millis(int(to.timestamp() * 1_000))
    if isinstance(to, timedelta):
        return Millis(now - int(to.total_seconds() * 1_000))
    if isinstance(to, str) and to not in _WORDS:
        raise InvalidRequestError(f"cannot reset to {to!r}: {', '.join(_WORDS)} or a time")
    return None


def planned(
    to: ResetTo, partitions: Mapping[TopicPartition, Ends]
) -> dict[TopicPartition, OffsetMove]:
    """Each partition's move; one without an offset to count from is a mistake."""
    return {
        where: OffsetMove(ends.committed, _within(ends, _wanted(to, where, ends)))
        for where, ends in sorted(partitions.items())
    }


def _wanted(to: ResetTo, where: TopicPartition, ends: Ends) -> int:
    match to:
        case "earliest":
            return ends.start
        case "latest":
            return ends.end
        case int():
            return to
        case datetime() | timedelta():
            return ends.end if ends.since is None else ends.since
        case Mapping():
            return to[where]
    if ends.committed is None:
        raise InvalidRequestError(
            f"partition {where} has no committed offset to count from: reset it to another place"
        )
    return ends.committed + (to.messages if isinstance(to, By) else 0)


def _within(ends: Ends, offset: int) -> Offset:
    return Offset(min(max(offset, ends.start), ends.end))
