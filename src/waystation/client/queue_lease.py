"""What a consumer of a queue holds, and until when.

All messages of one partition that came in one answer have one lease: they were locked at the same
moment for the same time.  A lease knows which of them are still to be settled, so that what is
settled twice, or too late, is noticed here, before a broker is asked.

1. A message is settled once: the second attempt is told so.  If it came twice, because its lock
   was over, the later delivery counts; if it was settled all the same, neither is handed out.
2. What is over by our clock is over by the broker's: the lock began before we heard of it.
3. When the session with a leader ends, all of its leases do (``Hold.lost`` says why).
"""

from typing import Protocol

from waystation.client.queue_settling import Batch
from waystation.model.ids import NO_TOPIC_ID, TopicId, TopicPartition
from waystation.model.offsets import Offset

__all__ = ["Hold", "Lease", "Settler"]


class Settler(Protocol):
    """Who tells the leader what became of messages: the session with it."""

    @property
    def lock_s(self) -> float:
        """For how long the leader locks messages."""
        ...

    def settle(self, where: TopicPartition, offset: int, kind: int, why: str = "") -> Batch:
        """Tell the leader soon; whoever waits for its answer joins the batch."""
        ...

    async def check_extends(self) -> None:
        """Raise if the leader cannot renew locks."""
        ...


class Hold:
    """All that one session holds of one partition."""

    __slots__ = ("_latest", "lost", "partition", "session", "topic_id")

    def __init__(
        self, session: Settler, partition: TopicPartition, topic_id: TopicId = NO_TOPIC_ID
    ) -> None:
        self.session, self.partition, self.topic_id = session, partition, topic_id
        self.lost: str | None = None
        """Why nothing of it can be settled any more, if so."""
        self._latest: dict[Offset, Lease] = {}

    def took(self, lease: "Lease", offsets: set[Offset]) -> None:
        """Messages have come; one that came before, and whose lock is over, counts anew."""
        for offset in offsets:
            older = self._latest.get(offset)
            if older is not None:
                older.outlived(offset)
            self._latest[offset] = lease

    def settled(self, offset: Offset) -> None:
        """A message is settled for good, whichever delivery was meant."""
        lease = self._latest.pop(offset, None)
        if lease is not None:
            lease.forget(offset)

    def released(self, offset: Offset) -> None:
        """A message was given back; it may have come again by now, which counts."""
        lease = self._latest.get(offset)
        if lease is not None and not lease.has(offset):
            del self._latest[offset]


class Lease:
    """The messages that one answer brought of one partition."""

    __slots__ = ("_ends_at", "_extended", "_outlived", "_unsettled", "hold")

    def __init__(self, hold: Hold, ends_at: float, unsettled: set[Offset]) -> None:
        """``ends_at`` is by the loop's clock."""
        self.hold = hold
        self._ends_at, self._unsettled = ends_at, unsettled
        self._extended: dict[Offset, float] = {}
        self._outlived: set[Offset] = set()

    def ends_at(self, offset: Offset) -> float:
        """When the lock of a message is over, by the loop's clock."""
        return self._extended.get(offset, self._ends_at) if self._extended else self._ends_at

    def why_not(self, offset: Offset, now: float) -> str | None:
        """Why a message cannot be settled; ``None`` if it can."""
        if offset in self._outlived:
            return "is not held any more: its lock was over, and it was delivered again"
        if offset not in self._unsettled:
            return "was settled already"
        if self.hold.lost is not None:
            return f"is not held any more: {self.hold.lost}"
        late_s = now - self.ends_at(offset)
        if late_s >= 0:
            return (
                f"is not held any more: its lock was over {late_s:.1f} s ago. extend() it in time, "
                "or raise share.record.lock.duration.ms of the group"
            )
        return None

    def settle(self, offset: Offset, now: float) -> str | None:
        """Note that a message is being settled, or say why it cannot be.

        HOT: once per message that is acknowledged.
        """
        why = self.why_not(offset, now)
        self._unsettled.discard(offset)
        return why

    def has(self, offset: Offset) -> bool:
        """Whether a message is still to be settled."""
        return offset in self._unsettled

    def forget(self, offset: Offset) -> None:
        """A message is not to be settled any more."""
        self._unsettled.discard(offset)

    def outlived(self, offset: Offset) -> None:
        """A message has come again, so that its lock was over."""
        if offset in self._unsettled:
            self._outlived.add(offset)
            self._unsettled.discard(offset)

    def extend(self, offset: Offset, ends_at: float) -> None:
        """The lock of a message was renewed."""
        self._extended[offset] = ends_at
