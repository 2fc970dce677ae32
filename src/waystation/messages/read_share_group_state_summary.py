"""ReadShareGroupStateSummary: where a group's queues begin, without what was delivered behind it.

The group's coordinator asks on behalf of administrators; nobody is fenced by it.
"""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, string, uuid
from waystation.wire.versions import ApiKey


class PartitionData(Struct):
    """A partition, and the epoch in which it is led as far as the asking broker knows."""

    partition: int = field(int32)
    leader_epoch: int = field(int32)


class ReadStateSummaryData(Struct):
    """Partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[PartitionData] = field(array(PartitionData))


class ReadShareGroupStateSummaryRequest(Message, api=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY):
    """The partitions of one group."""

    group_id: str = field(string)
    topics: list[ReadStateSummaryData] = field(array(ReadStateSummaryData))


class PartitionResult(Struct):
    """Where one partition's queue begins, and since v1 how much behind that is settled."""

    partition: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    state_epoch: int = field(int32)
    leader_epoch: int = field(int32)
    start_offset: int = field(int64)
    delivery_complete_count: int = field(int32, "1+", default=-1)


class ReadStateSummaryResult(Struct):
    """What is known of the partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class ReadShareGroupStateSummaryResponse(Message, api=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY):
    """What is known of each partition."""

    results: list[ReadStateSummaryResult] = field(array(ReadStateSummaryResult))
