"""CreatePartitions: more partitions for topics that exist."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int16, int32, string
from waystation.wire.versions import ApiKey


class CreatePartitionsAssignment(Struct):
    """The brokers that shall hold one new partition, the preferred leader first."""

    broker_ids: list[int] = field(array(int32))


class CreatePartitionsTopic(Struct):
    """A topic and the number of partitions it shall have, old ones included."""

    name: str = field(string)
    count: int = field(int32)
    # One for each new partition, or null to leave the choice to the cluster.
    assignments: list[CreatePartitionsAssignment] | None = field(
        array(CreatePartitionsAssignment), nullable="0+"
    )


class CreatePartitionsRequest(Message, api=ApiKey.CREATE_PARTITIONS):
    """Adds partitions, or with ``validate_only`` says whether it could."""

    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic))
    timeout_ms: int = field(int32)
    validate_only: bool = field(boolean)


class CreatePartitionsTopicResult(Struct):
    """The outcome for one topic."""

    name: str = field(string)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")


class CreatePartitionsResponse(Message, api=ApiKey.CREATE_PARTITIONS):
    """The outcome for each topic."""

    throttle_time_ms: int = field(int32)
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult))
