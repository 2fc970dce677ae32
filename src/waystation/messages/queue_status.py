"""QueueStatus: how the queues of a group stand at the leader of their partitions.

An API of our own (10 040), versioned as Kafka's are; what it promises is in
``docs/protocol/queues.md``.  The group's coordinator knows what is stored; what is out at consumers
only the leaders do.
"""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int16, int32, int64, string, uuid
from waystation.wire.versions import ApiKey


class QueueStatusRequest(Message, api=ApiKey.QUEUE_STATUS):
    """Asks about partitions of one topic."""

    group_id: str = field(string)
    topic_id: UUID = field(uuid)
    partitions: list[int] = field(array(int32))


class QueueStatusPartition(Struct):
    """The queue of one partition; all figures are 0 while nobody uses it (``in_use``)."""

    partition_index: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    in_use: bool = field(boolean)
    start_offset: int = field(int64)
    end_offset: int = field(int64)
    available: int = field(int64)
    waiting: int = field(int64)
    in_flight: int = field(int64)
    dying: int = field(int64)
    settled: int = field(int64)


class QueueStatusResponse(Message, api=ApiKey.QUEUE_STATUS):
    """Each partition of the request."""

    throttle_time_ms: int = field(int32)
    partitions: list[QueueStatusPartition] = field(array(QueueStatusPartition))
