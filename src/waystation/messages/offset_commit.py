"""OffsetCommit: how far a group has read, kept for it by its coordinator.

From v9 on a member of the server-side protocol puts its epoch where others have a generation.
"""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, string, uuid
from waystation.wire.versions import ApiKey

BROKERS_RETENTION = -1
"""Keep the offset as long as the broker keeps offsets; only v2 to v4 could ask otherwise."""
NO_GENERATION = -1
"""Sent by those who commit without being a member."""


class OffsetCommitRequestPartition(Struct):
    """Everything before ``committed_offset`` is processed; the metadata is the client's own."""

    partition_index: int = field(int32)
    committed_offset: int = field(int64)
    committed_leader_epoch: int = field(int32, "6+", default=-1)
    committed_metadata: str | None = field(string, nullable="0+")


class OffsetCommitRequestTopic(Struct):
    """The positions in one topic, known by name and since v10 by id only."""

    name: str = field(string, "0-9")
    topic_id: UUID = field(uuid, "10+")
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition))


class OffsetCommitRequest(Message, api=ApiKey.OFFSET_COMMIT):
    """Keeps positions; an empty member id and no generation come from one who is no member."""

    group_id: str = field(string)
    generation_id_or_member_epoch: int = field(int32, "1+", default=NO_GENERATION)
    member_id: str = field(string, "1+")
    group_instance_id: str | None = field(string, "7+", nullable="7+")
    retention_time_ms: int = field(int64, "2-4", default=BROKERS_RETENTION)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic))


class OffsetCommitResponsePartition(Struct):
    """Whether the position was taken; an error of the whole group stands here too."""

    partition_index: int = field(int32)
    error_code: int = field(int16)


class OffsetCommitResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = field(string, "0-9")
    topic_id: UUID = field(uuid, "10+")
    partitions: list[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition))


class OffsetCommitResponse(Message, api=ApiKey.OFFSET_COMMIT):
    """The outcome for each partition of the request."""

    throttle_time_ms: int = field(int32, "3+")
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic))
