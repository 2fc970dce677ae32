"""What is remembered of share groups in ``__consumer_offsets``: the facts that a restart replays.

Each is stored under a key, and the newest fact of a key counts; a ``Forgotten`` one removes it.
There is nothing to remember of what a member reads at the moment: partitions are shared, so a
member may read its target at once, whoever else still does.
"""

from typing import NamedTuple

from waystation.model.ids import TopicId

Partitions = tuple[tuple[TopicId, tuple[int, ...]], ...]
"""Partitions by topic, topics in the order of their ids, partitions rising: one form per set."""


class ShareGroupStored(NamedTuple):
    """A share group, the epoch it is in, and a number for the topics it was shared out by."""

    group_id: str
    epoch: int
    metadata_hash: int


class ShareGroupForgotten(NamedTuple):
    """The group was deleted."""

    group_id: str


class ShareMemberStored(NamedTuple):
    """A member, and what it subscribes to."""

    group_id: str
    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]


class ShareMemberForgotten(NamedTuple):
    """The member left, or was silent for too long."""

    group_id: str
    member_id: str


class ShareTargetStored(NamedTuple):
    """The epoch that members' targets belong to."""

    group_id: str
    epoch: int


class ShareTargetForgotten(NamedTuple):
    """There are no targets any more."""

    group_id: str


class ShareMemberTargetStored(NamedTuple):
    """What a member shall read."""

    group_id: str
    member_id: str
    partitions: Partitions


class ShareMemberTargetForgotten(NamedTuple):
    """The member shall read nothing any more."""

    group_id: str
    member_id: str


class ShareQueuesStored(NamedTuple):
    """The partitions over which the group has queues: the share coordinator knows them."""

    group_id: str
    begun: Partitions


class ShareQueuesForgotten(NamedTuple):
    """The group has no queues any more."""

    group_id: str


GroupRecord = (
    ShareGroupStored
    | ShareGroupForgotten
    | ShareMemberStored
    | ShareMemberForgotten
    | ShareTargetStored
    | ShareTargetForgotten
    | ShareMemberTargetStored
    | ShareMemberTargetForgotten
    | ShareQueuesStored
    | ShareQueuesForgotten
)
