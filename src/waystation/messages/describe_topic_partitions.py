"""DescribeTopicPartitions: topics page by page, for clusters with many partitions."""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int16, int32, string, struct_of, uuid
from waystation.wire.versions import ApiKey

NOT_ASKED = -(1 << 31)
"""Authorized operations that the client did not ask for."""


class TopicRequest(Struct):
    """A topic by name."""

    name: str = field(string)


class Cursor(Struct):
    """The first partition of the next page."""

    topic_name: str = field(string)
    partition_index: int = field(int32)


class DescribeTopicPartitionsRequest(Message, api=ApiKey.DESCRIBE_TOPIC_PARTITIONS):
    """Asks for one page of topics; no names means all, no cursor means from the start."""

    topics: list[TopicRequest] = field(array(TopicRequest))
    response_partition_limit: int = field(int32, default=2000)
    cursor: Cursor | None = field(struct_of(Cursor), nullable="0+")


class DescribeTopicPartitionsResponsePartition(Struct):
    """Who leads a partition, who follows, and who may lead although not in sync."""

    error_code: int = field(int16)
    partition_index: int = field(int32)
    leader_id: int = field(int32)
    leader_epoch: int = field(int32, default=-1)
    replica_nodes: list[int] = field(array(int32))
    isr_nodes: list[int] = field(array(int32))
    eligible_leader_replicas: list[int] | None = field(array(int32), nullable="0+")
    last_known_elr: list[int] | None = field(array(int32), nullable="0+")
    offline_replicas: list[int] = field(array(int32))


class DescribeTopicPartitionsResponseTopic(Struct):
    """A topic, or why it is not shown."""

    error_code: int = field(int16)
    name: str | None = field(string, nullable="0+")
    topic_id: UUID = field(uuid)
    is_internal: bool = field(boolean)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(
        array(DescribeTopicPartitionsResponsePartition)
    )
    topic_authorized_operations: int = field(int32, default=NOT_ASKED)


class DescribeTopicPartitionsResponse(Message, api=ApiKey.DESCRIBE_TOPIC_PARTITIONS):
    """One page; no cursor means that it was the last one."""

    throttle_time_ms: int = field(int32)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(
        array(DescribeTopicPartitionsResponseTopic)
    )
    next_cursor: Cursor | None = field(struct_of(Cursor), nullable="0+")
