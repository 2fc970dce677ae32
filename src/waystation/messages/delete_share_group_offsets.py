"""DeleteShareGroupOffsets: an empty share group forgets its queues of some topics."""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, string, uuid
from waystation.wire.versions import ApiKey


class DeleteShareGroupOffsetsRequestTopic(Struct):
    """One topic."""

    topic_name: str = field(string)


class DeleteShareGroupOffsetsRequest(Message, api=ApiKey.DELETE_SHARE_GROUP_OFFSETS):
    """The topics of one group."""

    group_id: str = field(string)
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(
        array(DeleteShareGroupOffsetsRequestTopic)
    )


class DeleteShareGroupOffsetsResponseTopic(Struct):
    """The outcome for one topic."""

    topic_name: str = field(string)
    topic_id: UUID = field(uuid)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")


class DeleteShareGroupOffsetsResponse(Message, api=ApiKey.DELETE_SHARE_GROUP_OFFSETS):
    """The outcome for each topic, or for all."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(
        array(DeleteShareGroupOffsetsResponseTopic)
    )
