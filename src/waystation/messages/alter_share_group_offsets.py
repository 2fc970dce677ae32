"""AlterShareGroupOffsets: an administrator moves the queues of an empty share group."""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, string, uuid
from waystation.wire.versions import ApiKey


class AlterShareGroupOffsetsRequestPartition(Struct):
    """Where the queue of one partition shall begin."""

    partition_index: int = field(int32)
    start_offset: int = field(int64)


class AlterShareGroupOffsetsRequestTopic(Struct):
    """Partitions of one topic."""

    topic_name: str = field(string)
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field(
        array(AlterShareGroupOffsetsRequestPartition)
    )


class AlterShareGroupOffsetsRequest(Message, api=ApiKey.ALTER_SHARE_GROUP_OFFSETS):
    """The queues of one group."""

    group_id: str = field(string)
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(
        array(AlterShareGroupOffsetsRequestTopic)
    )


class AlterShareGroupOffsetsResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")


class AlterShareGroupOffsetsResponseTopic(Struct):
    """The outcome for the partitions of one topic."""

    topic_name: str = field(string)
    topic_id: UUID = field(uuid)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field(
        array(AlterShareGroupOffsetsResponsePartition)
    )


class AlterShareGroupOffsetsResponse(Message, api=ApiKey.ALTER_SHARE_GROUP_OFFSETS):
    """The outcome for each partition, or for all."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(
        array(AlterShareGroupOffsetsResponseTopic)
    )
