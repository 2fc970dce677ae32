"""CreateTopics: new topics, with their partitions and configs."""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int8, int16, int32, string, tagged, uuid
from waystation.wire.versions import ApiKey


class CreatableReplicaAssignment(Struct):
    """The brokers that shall hold one partition, the preferred leader first."""

    partition_index: int = field(int32)
    broker_ids: list[int] = field(array(int32))


class CreatableTopicConfig(Struct):
    """One config of the new topic, in its textual form."""

    name: str = field(string)
    value: str | None = field(string, nullable="0+")


class CreatableTopic(Struct):
    """A topic to create; -1 partitions or replicas leaves the number to the broker (v4+)."""

    name: str = field(string)
    num_partitions: int = field(int32)
    replication_factor: int = field(int16)
    # Where this is given, the two numbers above must be -1.
    assignments: list[CreatableReplicaAssignment] = field(array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = field(array(CreatableTopicConfig))


class CreateTopicsRequest(Message, api=ApiKey.CREATE_TOPICS):
    """Creates each topic, or with ``validate_only`` says whether it could."""

    topics: list[CreatableTopic] = field(array(CreatableTopic))
    timeout_ms: int = field(int32, default=60_000)
    validate_only: bool = field(boolean, "1+")


class CreatableTopicConfigs(Struct):
    """One config as the new topic has it, and where it comes from."""

    name: str = field(string, "5+")
    value: str | None = field(string, "5+", nullable="5+")
    read_only: bool = field(boolean, "5+")
    config_source: int = field(int8, "5+", default=-1)
    is_sensitive: bool = field(boolean, "5+")


class CreatableTopicResult(Struct):
    """The topic that was created, or why it was not."""

    name: str = field(string)
    topic_id: UUID = field(uuid, "7+")
    error_code: int = field(int16)
    error_message: str | None = field(string, "1+", nullable="0+")
    # Set where the caller may create topics but not see their configs.
    topic_config_error_code: int = tagged(0, int16, "5+")
    num_partitions: int = field(int32, "5+", default=-1)
    replication_factor: int = field(int16, "5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = field(
        array(CreatableTopicConfigs), "5+", nullable="5+"
    )


class CreateTopicsResponse(Message, api=ApiKey.CREATE_TOPICS):
    """The outcome for each topic."""

    throttle_time_ms: int = field(int32, "2+")
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult))
