"""What an admin is told about groups."""

from typing import NamedTuple

from waystation.client.bootstrap import Address
from waystation.model.ids import NodeId, TopicPartition
from waystation.model.offsets import Millis, Offset

__all__ = ["GroupDescription", "GroupListing", "GroupMember", "OffsetMove", "PartitionLag"]


class GroupListing(NamedTuple):
    """A group, where it is coordinated; fields that an old broker does not tell are empty."""

    group_id: str
    state: str
    kind: str
    """``classic``, ``consumer`` or ``share``, in small letters."""
    protocol_type: str
    coordinator: NodeId


class GroupMember(NamedTuple):
    """A member, what it subscribes to and what it reads."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """A group and its members; ``state`` is Kafka's word: Stable, Empty, PreparingRebalance ..."""

    group_id: str
    kind: str
    state: str
    assignor: str
    coordinator: Address
    members: tuple[GroupMember, ...]


class PartitionLag(NamedTuple):
    """How far a group is behind in one partition; ``None`` where it has committed nothing."""

    committed: Offset | None
    start: Offset
    end: Offset
    oldest_at: Millis | None
    """The timestamp of the oldest message that is not processed; ``None`` without one."""
    matches: int | None = None
    """Of a view: how many messages it shows that are not processed, as far as was looked."""
    counted_to: Offset | None = None
    """Of a view: how far that is."""

    @property
    def messages(self) -> int | None:
        """How many messages wait: of those that retention has taken, none.

        Counted by offsets, as Kafka's tools do: a transaction's marker counts as one, and stays
        if the group commits the offset after its last message; ``oldest_at`` is ``None`` then.
        Those of a view are counted one by one.
        """
        if self.committed is None:
            return None
        if self.matches is not None:
            return self.matches
        return max(self.end - max(self.committed, self.start), 0)

    def seconds(self, now: Millis) -> float | None:
        """How long the oldest message that is not processed has waited."""
        if self.committed is None:
            return None
        return 0.0 if self.oldest_at is None else max(now - self.oldest_at, 0) / 1_000


class OffsetMove(NamedTuple):
    """Where a reset takes a partition from, ``None`` if nowhere, and to."""

    before: Offset | None
    after: Offset
