"""The values of ``__share_group_state``, and of share groups in ``__consumer_offsets``, as Kafka
declares them.

Versions are those of the value, which stand in front of it.
"""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import (
    array,
    boolean,
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
from waystation.wire.versions import Spoken, Versions

_FROM_THE_START = Spoken(Versions(0, 0), Versions.parse("0+"))


class StateBatchValue(Struct):
    """The state of a range of offsets, the last one included."""

    first_offset: int = field(int64)
    last_offset: int = field(int64)
    delivery_state: int = field(int8)
    delivery_count: int = field(int16)


class ShareSnapshotValue(Message, spoken=_FROM_THE_START):
    """Of key version 0 in ``__share_group_state``: all that is known of a queue."""

    snapshot_epoch: int = field(int32)
    state_epoch: int = field(int32)
    leader_epoch: int = field(int32)
    start_offset: int = field(int64)
    delivery_complete_count: int = tagged(0, int32, "0+", default=-1)
    create_timestamp: int = field(int64)
    write_timestamp: int = field(int64)
    state_batches: list[StateBatchValue] = field(array(StateBatchValue))
    # Ours: what one leader leaves for the next.
    notes_version: int = tagged(10_000, int64, "0+", default=0)
    notes: bytes = tagged(10_001, octets, "0+", default=b"")
    # Ours: whether no leader has loaded it yet.
    is_new: bool = tagged(10_002, boolean, "0+", default=False)


class ShareUpdateValue(Message, spoken=_FROM_THE_START):
    """Of key version 1 there: what has changed since the snapshot."""

    snapshot_epoch: int = field(int32)
    leader_epoch: int = field(int32)
    start_offset: int = field(int64)
    delivery_complete_count: int = tagged(0, int32, "0+", default=-1)
    state_batches: list[StateBatchValue] = field(array(StateBatchValue))
    # Ours, as in the snapshot.
    notes_version: int = tagged(10_000, int64, "0+", default=0)
    notes: bytes = tagged(10_001, octets, "0+", default=b"")


class ShareGroupMemberMetadataValue(Message, spoken=_FROM_THE_START):
    """Of key version 10 in ``__consumer_offsets``: what a member subscribes to."""

    rack_id: str | None = field(string, nullable="0+")
    client_id: str = field(string)
    client_host: str = field(string)
    subscribed_topic_names: list[str] = field(array(string))


class ShareGroupMetadataValue(Message, spoken=_FROM_THE_START):
    """Of key version 11 there: a share group."""

    epoch: int = field(int32)
    metadata_hash: int = field(int64)


class ShareGroupTargetAssignmentMetadataValue(Message, spoken=_FROM_THE_START):
    """Of key version 12 there: the epoch for which targets were computed."""

    assignment_epoch: int = field(int32)
    assignment_timestamp: int = tagged(0, int64, "0+", default=0)


class AssignedPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[int] = field(array(int32))


class ShareGroupTargetAssignmentMemberValue(Message, spoken=_FROM_THE_START):
    """Of key version 13 there: what a member shall read."""

    topic_partitions: list[AssignedPartitions] = field(array(AssignedPartitions))


class TopicPartitionsInfo(Struct):
    """Partitions of one topic; we know topics by their ids and leave the name empty."""

    topic_id: UUID = field(uuid)
    topic_name: str = field(string)
    partitions: list[int] = field(array(int32))


class TopicInfo(Struct):
    """One topic."""

    topic_id: UUID = field(uuid)
    topic_name: str = field(string)


class ShareGroupStatePartitionMetadataValue(Message, spoken=_FROM_THE_START):
    """Of key version 15 there: the partitions over which the group has queues."""

    initializing_topics: list[TopicPartitionsInfo] = field(array(TopicPartitionsInfo))
    initialized_topics: list[TopicPartitionsInfo] = field(array(TopicPartitionsInfo))
    deleting_topics: list[TopicInfo] = field(array(TopicInfo))
