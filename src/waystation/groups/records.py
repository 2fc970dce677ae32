"""What is remembered of groups: the facts that a restart replays.

Each is stored under a key, and the newest fact of a key counts; a ``Forgotten`` one removes it.
How they are written as Kafka writes them is in ``broker/group_records.py``.
"""

from typing import NamedTuple

from waystation.model.ids import NO_TOPIC_ID, TopicId
from waystation.model.machines import InTransaction
from waystation.records.control import Marker

Partitions = tuple[tuple[TopicId, tuple[int, ...]], ...]
"""Partitions by topic, topics in the order of their ids, partitions rising: one form per set."""

NEVER = -1


class OffsetCommitted(NamedTuple):
    """A group has processed everything before ``offset``."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_at: int
    expires_at: int = NEVER
    """When a time the client asked for is over; ``NEVER`` where the broker's setting counts."""
    topic_id: TopicId = NO_TOPIC_ID


class OffsetForgotten(NamedTuple):
    """The offset was deleted, or has expired."""

    group_id: str
    topic: str
    partition: int


class ClassicMemberStored(NamedTuple):
    """A member of a classic group as of a generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class ClassicGroupStored(NamedTuple):
    """A classic group with a generation that was handed out; without members it is empty."""

    group_id: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    changed_at: int
    members: tuple[ClassicMemberStored, ...]


class ClassicGroupForgotten(NamedTuple):
    """The group is gone, or has become one of the other kind."""

    group_id: str


class ConsumerGroupStored(NamedTuple):
    """A group of the server-side protocol has reached an epoch."""

    group_id: str
    epoch: int
    metadata_hash: int
    """Of the subscribed topics' ids, partition counts and racks; a new one needs a new epoch."""


class ConsumerGroupForgotten(NamedTuple):
    """The group is gone, or has become one of the other kind."""

    group_id: str


class ClassicProtocolMember(NamedTuple):
    """What a member that still speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerMemberStored(NamedTuple):
    """What a member of the server-side protocol subscribes to."""

    group_id: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicProtocolMember | None = None


class ConsumerMemberForgotten(NamedTuple):
    """The member left, was fenced or replaced."""

    group_id: str
    member_id: str


class TargetStored(NamedTuple):
    """The members' targets below were computed for ``epoch``; written after them."""

    group_id: str
    epoch: int
    computed_at: int


class TargetForgotten(NamedTuple):
    """There is no target any more."""

    group_id: str


class MemberTargetStored(NamedTuple):
    """What a member shall read in the end."""

    group_id: str
    member_id: str
    partitions: Partitions


class MemberTargetForgotten(NamedTuple):
    """The member is gone."""

    group_id: str
    member_id: str


class MemberCurrentStored(NamedTuple):
    """What a member reads now, on its way to the target.

    ``state`` is one of ``consumer.py``: stable, unrevoked partitions, unreleased partitions.
    """

    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: int
    assigned: Partitions
    revoking: Partitions


class MemberCurrentForgotten(NamedTuple):
    """The member is gone."""

    group_id: str
    member_id: str


class RegexResolved(NamedTuple):
    """The topics that a regular expression stood for, as of a version of the metadata."""

    group_id: str
    regex: str
    topics: tuple[str, ...]
    version: int
    resolved_at: int


class RegexForgotten(NamedTuple):
    """No member subscribes by it any more."""

    group_id: str
    regex: str


PendingOffset = InTransaction[OffsetCommitted]
"""An offset that counts if the transaction it is part of is committed."""

GroupFact = (
    ClassicGroupStored
    | ClassicGroupForgotten
    | ConsumerGroupStored
    | ConsumerGroupForgotten
    | ConsumerMemberStored
    | ConsumerMemberForgotten
    | TargetStored
    | TargetForgotten
    | MemberTargetStored
    | MemberTargetForgotten
    | MemberCurrentStored
    | MemberCurrentForgotten
    | RegexResolved
    | RegexForgotten
)
"""What is remembered of a group itself."""

Fact = OffsetCommitted | OffsetForgotten | GroupFact
"""What counts as soon as it is remembered; each has a key of its own."""

Record = Fact | PendingOffset | Marker
