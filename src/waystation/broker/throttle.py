"""How fast replicas that are being moved are copied, so that clients do not notice.

A topic lists the replicas that count (``leader.replication.throttled.replicas`` and the
follower's), the broker says how many bytes a second they may take together.  As in Kafka:

1. a replica that is in sync is never slowed down, whatever the lists say: acks=all waits for it;
2. what was sent may pass the rate once, by one batch, and is waited for afterwards, so that a
   large batch gets through under any rate;
3. nothing is saved up for longer than some hundredths of a second, and an answer takes no more
   than some thousandths: a replica in sync shares the connection, and must not wait behind it.
"""

from collections.abc import Callable
from typing import Final

from waystation.model.ids import NodeId
from waystation.partition.partition import Partition

_UNLIMITED: Final = 1 << 62
_SAVED_S: Final = 0.03
_SLICE_S: Final = 0.005
_SLICE_BYTES_MIN: Final = 64 << 10
# An operator may raise a rate that was much too low.
_LOOK_AGAIN_S: Final = 1.0


class Allowance:
    """Bytes that may be moved now: grows with time, and may be overdrawn by one answer."""

    __slots__ = ("_at_s", "_left", "_now_s", "_rate")

    def __init__(self, rate: Callable[[], int], now_s: Callable[[], float]) -> None:
        self._rate = rate
        self._now_s = now_s
        self._at_s = now_s()
        self._left = 0.0

    @property
    def is_limited(self) -> bool:
        """Whether a rate was set at all."""
        return self._rate() < _UNLIMITED

    def delay_s(self) -> float:
        """How long until something may be moved, or the rate is looked at again; 0: now."""
        rate = self._rate()
        if rate >= _UNLIMITED:
            return 0.0
        now_s = self._now_s()
        self._left = min(self._left + (now_s - self._at_s) * rate, rate * _SAVED_S)
        self._at_s = now_s
        return 0.0 if self._left >= 0 else min(-self._left / rate, _LOOK_AGAIN_S)

    @property
    def slice_bytes(self) -> int:
        """How much of one partition may be moved at a time, apart from a batch that is larger."""
        return max(int(self._rate() * _SLICE_S), _SLICE_BYTES_MIN)

    def take(self, nbytes: int) -> None:
        """Something was moved."""
        self._left -= nbytes


class LeaderThrottle:
    """What this broker sends to followers that are not in sync."""

    __slots__ = ("_allowance",)

    def __init__(self, rate: Callable[[], int], now_s: Callable[[], float]) -> None:
        self._allowance = Allowance(rate, now_s)

    def delay_s(self, partition: Partition, node: NodeId) -> float:
        """How long ``node`` must wait for more of the partition.

        HOT: once per partition that a follower has something to read of.
        """
        listed = partition.settings.leader_replication_throttled_replicas
        if not listed or not self._counts(partition, node, listed):
            return 0.0
        return self._allowance.delay_s()

    def most(self, partition: Partition, node: NodeId, max_bytes: int) -> int:
        """How much of the partition ``node`` gets at a time, of what it would take."""
        listed = partition.settings.leader_replication_throttled_replicas
        if not listed or not self._counts(partition, node, listed):
            return max_bytes
        return min(max_bytes, self._allowance.slice_bytes)

    def sent(self, partition: Partition, node: NodeId, nbytes: int) -> None:
        """Something of the partition was sent to ``node``."""
        listed = partition.settings.leader_replication_throttled_replicas
        if listed and self._counts(partition, node, listed):
            self._allowance.take(nbytes)

    def _counts(self, partition: Partition, node: NodeId, listed: tuple[str, ...]) -> bool:
        return (
            self._allowance.is_limited
            and node not in partition.leadership.in_sync
            and names(listed, partition.name.partition, partition.leadership.leader)
        )


class FollowerThrottle:
    """What this broker copies into replicas of its own that are not in sync."""

    __slots__ = ("_allowance", "_node")

    def __init__(self, node: NodeId, rate: Callable[[], int], now_s: Callable[[], float]) -> None:
        self._node = node
        self._allowance = Allowance(rate, now_s)

    def delay_s(self, partition: Partition) -> float:
        """How long to wait before more of the partition is asked for."""
        return self._allowance.delay_s() if self._counts(partition) else 0.0

    def most(self, partition: Partition, max_bytes: int) -> int:
        """How much of the partition to ask for at a time."""
        return min(max_bytes, self._allowance.slice_bytes) if self._counts(partition) else max_bytes

    def received(self, partition: Partition, nbytes: int) -> None:
        """Something of the partition was copied."""
        if self._counts(partition):
            self._allowance.take(nbytes)

    def _counts(self, partition: Partition) -> bool:
        listed = partition.settings.follower_replication_throttled_replicas
        return (
            bool(listed)
            and self._allowance.is_limited
            and self._node not in partition.leadership.in_sync
            and names(listed, partition.name.partition, self._node)
        )


def names(listed: tuple[str, ...], partition: int, node: NodeId | None) -> bool:
    """Whether a list of ``partition:broker``, or a star, has the replica in it."""
    return listed == ("*",) or f"{partition}:{node}" in listed
