"""ListOffsets: the offset at a time, or at one of the ends of a log."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int8, int16, int32, int64, string
from waystation.wire.versions import ApiKey

LATEST = -1
"""Asks for the end of what a reader may see."""
EARLIEST = -2
"""Asks for the start of the log."""
MAX_TIMESTAMP = -3
"""Asks, since v7, for the record with the greatest timestamp."""
EARLIEST_LOCAL = -4
"""Asks, since v8, for the start of what this broker holds itself."""
LATEST_TIERED = -5
"""Asks, since v9, for the end of what has been moved to remote storage."""
EARLIEST_PENDING_UPLOAD = -6
"""Asks, since v11, for the start of what has not been moved to remote storage yet."""


class ListOffsetsPartition(Struct):
    """A time in ms, answered by the first record at or after it, or one of the constants above."""

    partition_index: int = field(int32)
    current_leader_epoch: int = field(int32, "4+", default=-1)
    timestamp: int = field(int64)


class ListOffsetsTopic(Struct):
    """The questions about one topic."""

    name: str = field(string)
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition))


class ListOffsetsRequest(Message, api=ApiKey.LIST_OFFSETS):
    """Asks for offsets; consumers have the replica id -1."""

    # Kafka's implicit default is 0, which would be a follower's id; nobody means that.
    replica_id: int = field(int32, default=-1)
    isolation_level: int = field(int8, "2+")
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic))
    timeout_ms: int = field(int32, "10+")


class ListOffsetsPartitionResponse(Struct):
    """The offset found; -1 if no record is that young."""

    partition_index: int = field(int32)
    error_code: int = field(int16)
    timestamp: int = field(int64, "1+", default=-1)
    offset: int = field(int64, "1+", default=-1)
    leader_epoch: int = field(int32, "4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    """The answers about one topic."""

    name: str = field(string)
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse))


class ListOffsetsResponse(Message, api=ApiKey.LIST_OFFSETS):
    """The offset for each partition of the request."""

    throttle_time_ms: int = field(int32, "2+")
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse))
