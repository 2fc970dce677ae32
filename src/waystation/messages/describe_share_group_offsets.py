"""DescribeShareGroupOffsets: how far the queues of share groups have come."""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, string, uuid
from waystation.wire.versions import ApiKey


class DescribeShareGroupOffsetsRequestTopic(Struct):
    """Partitions of one topic."""

    topic_name: str = field(string)
    partitions: list[int] = field(array(int32))


class DescribeShareGroupOffsetsRequestGroup(Struct):
    """One group; without topics, all that it has offsets of."""

    group_id: str = field(string)
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(
        array(DescribeShareGroupOffsetsRequestTopic), nullable="0+"
    )


class DescribeShareGroupOffsetsRequest(Message, api=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS):
    """Asks about any number of groups."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(
        array(DescribeShareGroupOffsetsRequestGroup)
    )


class DescribeShareGroupOffsetsResponsePartition(Struct):
    """Where one partition's queue begins, -1 if it does not, and since v1 what is unsettled."""

    partition_index: int = field(int32)
    start_offset: int = field(int64)
    leader_epoch: int = field(int32)
    lag: int = field(int64, "1+", default=-1)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")


class DescribeShareGroupOffsetsResponseTopic(Struct):
    """The partitions of one topic."""

    topic_name: str = field(string)
    topic_id: UUID = field(uuid)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(
        array(DescribeShareGroupOffsetsResponsePartition)
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    """The queues of one group."""

    group_id: str = field(string)
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field(
        array(DescribeShareGroupOffsetsResponseTopic)
    )
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")


class DescribeShareGroupOffsetsResponse(Message, api=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS):
    """Each group of the request."""

    throttle_time_ms: int = field(int32)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(
        array(DescribeShareGroupOffsetsResponseGroup)
    )
