"""WriteShareGroupState: a partition's leader has remembered what its queue delivered.

A write of an older leader epoch comes from a leader that was replaced, one of another state
epoch from before the group began anew: both are refused.
"""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import (
    array,
    field,
    int8,
    int16,
    int32,
    int64,
    octets,
    string,
    tagged,
    uuid,
)
from waystation.wire.versions import ApiKey


class StateBatch(Struct):
    """The state of a range of offsets, the last one included; as in ReadShareGroupState."""

    first_offset: int = field(int64)
    last_offset: int = field(int64)
    delivery_state: int = field(int8)
    delivery_count: int = field(int16)


class PartitionData(Struct):
    """What has changed in one partition.

    A start offset of -1 says that it has not moved; since v1 the count is of what is settled
    at or past it, from which the group's lag follows.
    """

    partition: int = field(int32)
    state_epoch: int = field(int32)
    leader_epoch: int = field(int32)
    start_offset: int = field(int64)
    delivery_complete_count: int = field(int32, "1+", default=-1)
    state_batches: list[StateBatch] = field(array(StateBatch))
    # Ours: what one leader leaves for the next.
    notes_version: int = tagged(10_000, int64, "0+", default=0)
    notes: bytes = tagged(10_001, octets, "0+", default=b"")


class WriteStateData(Struct):
    """Partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[PartitionData] = field(array(PartitionData))


class WriteShareGroupStateRequest(Message, api=ApiKey.WRITE_SHARE_GROUP_STATE):
    """The partitions of one group."""

    group_id: str = field(string)
    topics: list[WriteStateData] = field(array(WriteStateData))


class PartitionResult(Struct):
    """The outcome for one partition."""

    partition: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")


class WriteStateResult(Struct):
    """The outcome for the partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class WriteShareGroupStateResponse(Message, api=ApiKey.WRITE_SHARE_GROUP_STATE):
    """The outcome for each partition."""

    results: list[WriteStateResult] = field(array(WriteStateResult))
