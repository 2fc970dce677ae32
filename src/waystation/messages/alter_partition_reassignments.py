"""AlterPartitionReassignments: gives partitions other replicas, or takes that wish back."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int16, int32, string
from waystation.wire.versions import ApiKey


class ReassignablePartition(Struct):
    """The replicas that a partition shall have; null cancels what is under way."""

    partition_index: int = field(int32)
    replicas: list[int] | None = field(array(int32), nullable="0+", default=None)


class ReassignableTopic(Struct):
    """Partitions of one topic."""

    name: str = field(string)
    partitions: list[ReassignablePartition] = field(array(ReassignablePartition))


class AlterPartitionReassignmentsRequest(Message, api=ApiKey.ALTER_PARTITION_REASSIGNMENTS):
    """Asks for moves; they are under way, not done, when this is answered."""

    timeout_ms: int = field(int32, default=60000)
    allow_replication_factor_change: bool = field(boolean, "1+", default=True)
    topics: list[ReassignableTopic] = field(array(ReassignableTopic))


class ReassignablePartitionResponse(Struct):
    """Whether one partition's wish was taken."""

    partition_index: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")


class ReassignableTopicResponse(Struct):
    """The partitions of one topic."""

    name: str = field(string)
    partitions: list[ReassignablePartitionResponse] = field(array(ReassignablePartitionResponse))


class AlterPartitionReassignmentsResponse(Message, api=ApiKey.ALTER_PARTITION_REASSIGNMENTS):
    """One result per partition; an error on top is for all of them."""

    throttle_time_ms: int = field(int32)
    allow_replication_factor_change: bool = field(boolean, "1+", default=True)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    responses: list[ReassignableTopicResponse] = field(array(ReassignableTopicResponse))
