"""ShareGroupDescribe: share groups, their members, and what each of them reads."""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int16, int32, string, struct_of, uuid
from waystation.wire.versions import ApiKey

NOT_ASKED = -(1 << 31)
"""Authorized operations that the client did not ask for."""


class ShareGroupDescribeRequest(Message, api=ApiKey.SHARE_GROUP_DESCRIBE):
    """Asks about groups by their ids."""

    group_ids: list[str] = field(array(string))
    include_authorized_operations: bool = field(boolean)


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = field(uuid)
    topic_name: str = field(string)
    partitions: list[int] = field(array(int32))


class Assignment(Struct):
    """Partitions of a member."""

    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions))


class Member(Struct):
    """A member: what it subscribes to, and what it reads now."""

    member_id: str = field(string)
    rack_id: str | None = field(string, nullable="0+")
    member_epoch: int = field(int32)
    client_id: str = field(string)
    client_host: str = field(string)
    subscribed_topic_names: list[str] = field(array(string))
    assignment: Assignment = field(struct_of(Assignment))


class DescribedGroup(Struct):
    """A group as its coordinator sees it."""

    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    group_id: str = field(string)
    group_state: str = field(string)
    group_epoch: int = field(int32)
    assignment_epoch: int = field(int32)
    assignor_name: str = field(string)
    members: list[Member] = field(array(Member))
    authorized_operations: int = field(int32, default=NOT_ASKED)


class ShareGroupDescribeResponse(Message, api=ApiKey.SHARE_GROUP_DESCRIBE):
    """Each group of the request."""

    throttle_time_ms: int = field(int32)
    groups: list[DescribedGroup] = field(array(DescribedGroup))
