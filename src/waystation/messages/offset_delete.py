"""OffsetDelete: forget positions of topics that no member of the group reads."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, string
from waystation.wire.versions import ApiKey


class OffsetDeleteRequestPartition(Struct):
    """A partition whose position shall go."""

    partition_index: int = field(int32)


class OffsetDeleteRequestTopic(Struct):
    """The positions to forget of one topic."""

    name: str = field(string)
    partitions: list[OffsetDeleteRequestPartition] = field(array(OffsetDeleteRequestPartition))


class OffsetDeleteRequest(Message, api=ApiKey.OFFSET_DELETE):
    """Forgets positions of one group."""

    group_id: str = field(string)
    topics: list[OffsetDeleteRequestTopic] = field(array(OffsetDeleteRequestTopic))


class OffsetDeleteResponsePartition(Struct):
    """Whether the position is gone."""

    partition_index: int = field(int32)
    error_code: int = field(int16)


class OffsetDeleteResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = field(string)
    partitions: list[OffsetDeleteResponsePartition] = field(array(OffsetDeleteResponsePartition))


class OffsetDeleteResponse(Message, api=ApiKey.OFFSET_DELETE):
    """The outcome for the group, or for each partition."""

    # In contrast to all other answers, the error comes before the throttle time.
    error_code: int = field(int16)
    throttle_time_ms: int = field(int32)
    topics: list[OffsetDeleteResponseTopic] = field(array(OffsetDeleteResponseTopic))
