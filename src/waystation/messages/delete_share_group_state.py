"""DeleteShareGroupState: a group or a topic is gone, and so is what was delivered of it."""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, string, uuid
from waystation.wire.versions import ApiKey


class PartitionData(Struct):
    """One partition."""

    partition: int = field(int32)


class DeleteStateData(Struct):
    """Partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[PartitionData] = field(array(PartitionData))


class DeleteShareGroupStateRequest(Message, api=ApiKey.DELETE_SHARE_GROUP_STATE):
    """The partitions of one group."""

    group_id: str = field(string)
    topics: list[DeleteStateData] = field(array(DeleteStateData))


class PartitionResult(Struct):
    """The outcome for one partition."""

    partition: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")


class DeleteStateResult(Struct):
    """The outcome for the partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class DeleteShareGroupStateResponse(Message, api=ApiKey.DELETE_SHARE_GROUP_STATE):
    """The outcome for each partition."""

    results: list[DeleteStateResult] = field(array(DeleteStateResult))
