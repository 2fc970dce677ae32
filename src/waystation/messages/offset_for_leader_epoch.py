"""OffsetForLeaderEpoch: where an epoch ends in the leader's log.

A reader whose own log, or whose position, goes further in that epoch has diverged and
goes back to the answer.
"""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, string
from waystation.wire.versions import ApiKey

DEBUGGER = -2
"""The replica id of one that is neither a consumer (-1) nor a follower."""


class OffsetForLeaderPartition(Struct):
    """An epoch to look up; ``current_leader_epoch`` is the one the asker believes in."""

    partition: int = field(int32)
    current_leader_epoch: int = field(int32, default=-1)
    leader_epoch: int = field(int32)


class OffsetForLeaderTopic(Struct):
    """The questions about one topic."""

    topic: str = field(string)
    partitions: list[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition))


class OffsetForLeaderEpochRequest(Message, api=ApiKey.OFFSET_FOR_LEADER_EPOCH):
    """Asks where epochs end."""

    replica_id: int = field(int32, "3+", default=DEBUGGER)
    topics: list[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic))


class EpochEndOffset(Struct):
    """The latest epoch up to the one asked for, and the offset after its last record."""

    # In contrast to all other answers, the error comes first.
    error_code: int = field(int16)
    partition: int = field(int32)
    leader_epoch: int = field(int32, default=-1)
    end_offset: int = field(int64, default=-1)


class OffsetForLeaderTopicResult(Struct):
    """The answers about one topic."""

    topic: str = field(string)
    partitions: list[EpochEndOffset] = field(array(EpochEndOffset))


class OffsetForLeaderEpochResponse(Message, api=ApiKey.OFFSET_FOR_LEADER_EPOCH):
    """The end of each epoch asked for."""

    throttle_time_ms: int = field(int32)
    topics: list[OffsetForLeaderTopicResult] = field(array(OffsetForLeaderTopicResult))
