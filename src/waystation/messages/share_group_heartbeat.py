"""ShareGroupHeartbeat: membership of a share group in one request.

A member says what it subscribes to, and is told what to read.  Partitions are shared, so it
never says what it owns: there is nothing to give up before another may read.  What did not
change since its last heartbeat is null on both sides.
"""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, string, struct_of, uuid
from waystation.wire.versions import ApiKey

JOIN, LEAVE = 0, -1
"""Epochs that are none."""


class ShareGroupHeartbeatRequest(Message, api=ApiKey.SHARE_GROUP_HEARTBEAT):
    """Joins, goes on or leaves; the member's id is its own choice."""

    group_id: str = field(string)
    member_id: str = field(string)
    member_epoch: int = field(int32)
    rack_id: str | None = field(string, nullable="0+")
    subscribed_topic_names: list[str] | None = field(array(string), nullable="0+")


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[int] = field(array(int32))


class Assignment(Struct):
    """What the member reads from now on, perhaps together with others."""

    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions))


class ShareGroupHeartbeatResponse(Message, api=ApiKey.SHARE_GROUP_HEARTBEAT):
    """The member's epoch, when it is expected again, and news of its assignment."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    member_id: str | None = field(string, nullable="0+")
    member_epoch: int = field(int32)
    heartbeat_interval_ms: int = field(int32)
    assignment: Assignment | None = field(struct_of(Assignment), nullable="0+")
