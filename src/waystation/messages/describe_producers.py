"""DescribeProducers: which idempotent producers a partition remembers."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, string
from waystation.wire.versions import ApiKey


class TopicRequest(Struct):
    """Partitions of one topic."""

    name: str = field(string)
    partition_indexes: list[int] = field(array(int32))


class DescribeProducersRequest(Message, api=ApiKey.DESCRIBE_PRODUCERS):
    """Asks for the producers of partitions."""

    topics: list[TopicRequest] = field(array(TopicRequest))


class ProducerState(Struct):
    """What is remembered of one producer; -1 where there is nothing to remember."""

    producer_id: int = field(int64)
    # Twice as wide here as in every other message.
    producer_epoch: int = field(int32)
    last_sequence: int = field(int32, default=-1)
    last_timestamp: int = field(int64, default=-1)
    coordinator_epoch: int = field(int32)
    current_txn_start_offset: int = field(int64, default=-1)


class PartitionResponse(Struct):
    """The producers of one partition."""

    partition_index: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    active_producers: list[ProducerState] = field(array(ProducerState))


class TopicResponse(Struct):
    """The answers about one topic."""

    name: str = field(string)
    partitions: list[PartitionResponse] = field(array(PartitionResponse))


class DescribeProducersResponse(Message, api=ApiKey.DESCRIBE_PRODUCERS):
    """The producers of each partition."""

    throttle_time_ms: int = field(int32)
    topics: list[TopicResponse] = field(array(TopicResponse))
