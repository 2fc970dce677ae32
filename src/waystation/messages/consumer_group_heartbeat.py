"""ConsumerGroupHeartbeat: the whole of the server-side group protocol in one request.

A member says what it subscribes to and what it owns, and is told what to read.  What did not
change since its last heartbeat is null, or -1, on both sides.
"""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, string, struct_of, uuid
from waystation.wire.versions import ApiKey

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
"""Epochs that are none; the last is a static member's that will be back."""
UNCHANGED = -1
"""A rebalance time-out that is as it was."""


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[int] = field(array(int32))


class ConsumerGroupHeartbeatRequest(Message, api=ApiKey.CONSUMER_GROUP_HEARTBEAT):
    """Joins, goes on or leaves; since v1 the member's id is its own choice."""

    group_id: str = field(string)
    member_id: str = field(string)
    member_epoch: int = field(int32)
    instance_id: str | None = field(string, nullable="0+")
    rack_id: str | None = field(string, nullable="0+")
    rebalance_timeout_ms: int = field(int32, default=UNCHANGED)
    subscribed_topic_names: list[str] | None = field(array(string), nullable="0+")
    subscribed_topic_regex: str | None = field(string, "1+", nullable="1+")
    server_assignor: str | None = field(string, nullable="0+")
    topic_partitions: list[TopicPartitions] | None = field(array(TopicPartitions), nullable="0+")


class Assignment(Struct):
    """What the member may read from now on."""

    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions))


class ConsumerGroupHeartbeatResponse(Message, api=ApiKey.CONSUMER_GROUP_HEARTBEAT):
    """The member's epoch, when it is expected again, and news of its assignment."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    member_id: str | None = field(string, nullable="0+")
    member_epoch: int = field(int32)
    heartbeat_interval_ms: int = field(int32)
    assignment: Assignment | None = field(struct_of(Assignment), nullable="0+")
