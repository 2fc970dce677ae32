"""Queues for tests: settings by keyword, and a shorthand for what consumers do."""

from typing import Any

from waystation.model.offsets import Millis, Offset
from waystation.sharing.ordered_partition import OrderedPartition
from waystation.sharing.settings import QueueSettings, ShareSettings
from waystation.sharing.share_partition import SharePartition
from waystation.sharing.states import ACCEPT, Acknowledgement, Acquired

START = Offset(0)
NOW = Millis(1_000_000)
LOCK_MS = 30_000


def queue(start: int = 0, locks: int = 2_000, ranges: int = 10_000, **group: Any) -> SharePartition:
    """A queue in any order."""
    return SharePartition(Offset(start), *settings(locks, ranges, **group))


def ordered(
    start: int = 0, locks: int = 2_000, ranges: int = 10_000, **group: Any
) -> OrderedPartition:
    """A queue that chooses."""
    return OrderedPartition(Offset(start), *settings(locks, ranges, **group))


def settings(locks: int, ranges: int, **group: Any) -> tuple[Any, Any]:
    """The two functions that a queue asks."""
    of_group = QueueSettings(**group)
    of_broker = ShareSettings(
        group_share_partition_max_record_locks=locks, group_share_partition_max_ranges=ranges
    )
    return lambda: of_group, lambda: of_broker


def after(ms: int) -> Millis:
    """A moment later than ``NOW``."""
    return Millis(NOW + ms)


def take(
    of: SharePartition, member: str, limit: int, end: int = 1_000_000, now: Millis = NOW
) -> list[tuple[int, int, int]]:
    """Acquire as a host does: from where the queue says, up to what the log holds."""
    first = of.next_offset(now)
    if first is None:
        return []
    return as_tuples(of.acquire(now, member, limit, first, Offset(end)))


def say(
    of: SharePartition, member: str, first: int, end: int, kind: int = ACCEPT, now: Millis = NOW
) -> None:
    """Acknowledge one range."""
    of.acknowledge(now, member, [Acknowledgement(Offset(first), Offset(end), kind)])


def as_tuples(acquired: list[Acquired]) -> list[tuple[int, int, int]]:
    """For short comparisons."""
    return [tuple(one) for one in acquired]  # type: ignore[misc]
