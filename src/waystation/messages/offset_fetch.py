"""OffsetFetch: how far groups have read, so that a member goes on where the last one stopped.

Until v7 a request is about one group, from v8 on about several; no topics means all of them.
"""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int16, int32, int64, string, uuid
from waystation.wire.versions import ApiKey

NO_COMMITTED_OFFSET = -1
"""The answer for a partition of which the group has committed nothing: no error."""


class OffsetFetchRequestTopic(Struct):
    """Partitions of one topic, known by name and since v10 by id only."""

    name: str = field(string, "0-9")
    topic_id: UUID = field(uuid, "10+")
    partition_indexes: list[int] = field(array(int32))


class OffsetFetchRequestGroup(Struct):
    """The questions about one group; a member of the server-side protocol adds its epoch."""

    group_id: str = field(string, "8+")
    member_id: str | None = field(string, "9+", nullable="9+")
    member_epoch: int = field(int32, "9+", default=-1)
    topics: list[OffsetFetchRequestTopic] | None = field(
        array(OffsetFetchRequestTopic), "8+", nullable="8+"
    )


class OffsetFetchRequest(Message, api=ApiKey.OFFSET_FETCH):
    """Asks for positions; ``require_stable`` refuses those that an open transaction may move."""

    group_id: str = field(string, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = field(
        array(OffsetFetchRequestTopic), "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = field(array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = field(boolean, "7+")


class OffsetFetchResponsePartition(Struct):
    """A position; -1 where there is none."""

    partition_index: int = field(int32)
    committed_offset: int = field(int64)
    committed_leader_epoch: int = field(int32, "5+", default=-1)
    metadata: str | None = field(string, nullable="0+")
    error_code: int = field(int16)


class OffsetFetchResponseTopic(Struct):
    """The positions in one topic."""

    name: str = field(string, "0-9")
    topic_id: UUID = field(uuid, "10+")
    partitions: list[OffsetFetchResponsePartition] = field(array(OffsetFetchResponsePartition))


class OffsetFetchResponseGroup(Struct):
    """The positions of one group, or why there are none."""

    group_id: str = field(string, "8+")
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), "8+")
    error_code: int = field(int16, "8+")


class OffsetFetchResponse(Message, api=ApiKey.OFFSET_FETCH):
    """The positions; v1 has no place for an error of the group but its partitions."""

    throttle_time_ms: int = field(int32, "3+")
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), "0-7")
    error_code: int = field(int16, "2-7")
    groups: list[OffsetFetchResponseGroup] = field(array(OffsetFetchResponseGroup), "8+")
