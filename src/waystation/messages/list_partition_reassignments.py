"""ListPartitionReassignments: which partitions are on their way to other replicas."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, string
from waystation.wire.versions import ApiKey


class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic to look for."""

    name: str = field(string)
    partition_indexes: list[int] = field(array(int32))


class ListPartitionReassignmentsRequest(Message, api=ApiKey.LIST_PARTITION_REASSIGNMENTS):
    """Asks about some partitions; null means all that are being reassigned."""

    timeout_ms: int = field(int32, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        array(ListPartitionReassignmentsTopics), nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    """Who holds a partition, who is to come and who is to go."""

    partition_index: int = field(int32)
    replicas: list[int] = field(array(int32))
    adding_replicas: list[int] = field(array(int32))
    removing_replicas: list[int] = field(array(int32))


class OngoingTopicReassignment(Struct):
    """The moving partitions of one topic."""

    name: str = field(string)
    partitions: list[OngoingPartitionReassignment] = field(array(OngoingPartitionReassignment))


class ListPartitionReassignmentsResponse(Message, api=ApiKey.LIST_PARTITION_REASSIGNMENTS):
    """Only what is being reassigned; partitions that stay are left out."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    topics: list[OngoingTopicReassignment] = field(array(OngoingTopicReassignment))
