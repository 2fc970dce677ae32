"""ReadShareGroupState: a partition's new leader loads what its queue has delivered so far.

Asking fences the leader before it: the share coordinator remembers the leader epoch.
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


class EpochStart(Struct):
    """Where a leader epoch begins in the asking broker's log."""

    epoch: int = field(int32)
    start_offset: int = field(int64)


class PartitionData(Struct):
    """A partition, and the epoch in which the asking broker leads it."""

    partition: int = field(int32)
    leader_epoch: int = field(int32)
    # Ours: which leaders wrote its log, so that what is known of lost messages is forgotten.
    log_end_offset: int = tagged(10_000, int64, "0+", default=-1)
    epochs: list[EpochStart] = tagged(10_001, array(EpochStart), "0+")


class ReadStateData(Struct):
    """Partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[PartitionData] = field(array(PartitionData))


class ReadShareGroupStateRequest(Message, api=ApiKey.READ_SHARE_GROUP_STATE):
    """The partitions of one group."""

    group_id: str = field(string)
    topics: list[ReadStateData] = field(array(ReadStateData))


class StateBatch(Struct):
    """The state of a range of offsets, the last one included: 0 available, 2 acknowledged,
    4 archived.
    """

    first_offset: int = field(int64)
    last_offset: int = field(int64)
    delivery_state: int = field(int8)
    delivery_count: int = field(int16)


class PartitionResult(Struct):
    """All that is known of one partition; what no batch names was never delivered."""

    partition: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    state_epoch: int = field(int32)
    start_offset: int = field(int64)
    state_batches: list[StateBatch] = field(array(StateBatch))
    # Ours: what one leader leaves for the next.
    notes_version: int = tagged(10_000, int64, "0+", default=0)
    notes: bytes = tagged(10_001, octets, "0+", default=b"")


class ReadStateResult(Struct):
    """What is known of the partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class ReadShareGroupStateResponse(Message, api=ApiKey.READ_SHARE_GROUP_STATE):
    """What is known of each partition."""

    results: list[ReadStateResult] = field(array(ReadStateResult))
