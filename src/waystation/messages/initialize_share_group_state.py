"""InitializeShareGroupState: a group begins, or begins anew, at an offset of a partition.

Sent to the share coordinator by the group's coordinator, under a state epoch of its choice.
"""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, string, uuid
from waystation.wire.versions import ApiKey


class PartitionData(Struct):
    """Where the queue of one partition begins; -1 leaves it to the group's config."""

    partition: int = field(int32)
    state_epoch: int = field(int32)
    start_offset: int = field(int64)


class InitializeStateData(Struct):
    """Partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[PartitionData] = field(array(PartitionData))


class InitializeShareGroupStateRequest(Message, api=ApiKey.INITIALIZE_SHARE_GROUP_STATE):
    """The partitions of one group."""

    group_id: str = field(string)
    topics: list[InitializeStateData] = field(array(InitializeStateData))


class PartitionResult(Struct):
    """The outcome for one partition."""

    partition: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")


class InitializeStateResult(Struct):
    """The outcome for the partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class InitializeShareGroupStateResponse(Message, api=ApiKey.INITIALIZE_SHARE_GROUP_STATE):
    """The outcome for each partition."""

    results: list[InitializeStateResult] = field(array(InitializeStateResult))
