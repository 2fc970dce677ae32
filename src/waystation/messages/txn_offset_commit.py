"""TxnOffsetCommit: how far a group has read, to count once a transaction commits.

It goes to the group's coordinator.  Since v3 it says which member of which generation
commits, so that one who was left behind by a rebalance is refused; since v5 it also makes
the group's offsets part of the transaction.
"""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, string
from waystation.wire.versions import ApiKey

IMPLICIT_FROM = 5
"""The first version that needs no AddOffsetsToTxn before it."""
NO_GENERATION = -1
"""Sent by those who commit without being a member."""


class TxnOffsetCommitRequestPartition(Struct):
    """Everything before ``committed_offset`` is processed; the metadata is the client's own."""

    partition_index: int = field(int32)
    committed_offset: int = field(int64)
    committed_leader_epoch: int = field(int32, "2+", default=-1)
    committed_metadata: str | None = field(string, nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    """The positions in one topic."""

    name: str = field(string)
    partitions: list[TxnOffsetCommitRequestPartition] = field(
        array(TxnOffsetCommitRequestPartition)
    )


class TxnOffsetCommitRequest(Message, api=ApiKey.TXN_OFFSET_COMMIT):
    """Positions of a group that hang on the outcome of the producer's transaction."""

    transactional_id: str = field(string)
    group_id: str = field(string)
    producer_id: int = field(int64)
    producer_epoch: int = field(int16)
    generation_id: int = field(int32, "3+", default=NO_GENERATION)
    member_id: str = field(string, "3+")
    group_instance_id: str | None = field(string, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(array(TxnOffsetCommitRequestTopic))


class TxnOffsetCommitResponsePartition(Struct):
    """Whether the position was taken; an error of the whole group stands here too."""

    partition_index: int = field(int32)
    error_code: int = field(int16)


class TxnOffsetCommitResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = field(string)
    partitions: list[TxnOffsetCommitResponsePartition] = field(
        array(TxnOffsetCommitResponsePartition)
    )


class TxnOffsetCommitResponse(Message, api=ApiKey.TXN_OFFSET_COMMIT):
    """The outcome for each partition of the request."""

    throttle_time_ms: int = field(int32)
    topics: list[TxnOffsetCommitResponseTopic] = field(array(TxnOffsetCommitResponseTopic))
