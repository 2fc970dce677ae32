"""Produce: record batches to append, and where they went."""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import (
    array,
    field,
    int16,
    int32,
    int64,
    records,
    string,
    struct_of,
    tagged,
    uuid,
)
from waystation.wire.versions import ApiKey

REPEATED = "repeated"
"""What our brokers say, beside no error, of a batch that was stored before.  To most that is all
the same; who shares a producer's numbers with others learns that they were taken."""


class PartitionProduceData(Struct):
    """The batches for one partition, as a view of the frame they came in."""

    index: int = field(int32)
    records: memoryview | None = field(records, nullable="0+")


class TopicProduceData(Struct):
    """The batches for one topic, known by name and since v13 by id only."""

    name: str = field(string, "0-12")
    topic_id: UUID = field(uuid, "13+")
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData))


class ProduceRequest(Message, api=ApiKey.PRODUCE):
    """Appends batches; acks is 0 (no answer at all), 1 (the leader has it) or -1 (all have it)."""

    transactional_id: str | None = field(string, "3+", nullable="3+")
    acks: int = field(int16)
    timeout_ms: int = field(int32)
    topic_data: list[TopicProduceData] = field(array(TopicProduceData))


class BatchIndexAndErrorMessage(Struct):
    """A record that was the reason for refusing its batch."""

    batch_index: int = field(int32, "8+")
    batch_index_error_message: str | None = field(string, "8+", nullable="8+")


class LeaderIdAndEpoch(Struct):
    """Who leads instead; saves a client a Metadata request."""

    leader_id: int = field(int32, default=-1)
    leader_epoch: int = field(int32, default=-1)


class PartitionProduceResponse(Struct):
    """Where the batches for one partition begin in its log, or why they were refused."""

    index: int = field(int32)
    error_code: int = field(int16)
    base_offset: int = field(int64)
    # -1 unless the topic stamps records with the time of appending.
    log_append_time_ms: int = field(int64, "2+", default=-1)
    log_start_offset: int = field(int64, "5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(array(BatchIndexAndErrorMessage), "8+")
    error_message: str | None = field(string, "8+", nullable="8+")
    current_leader: LeaderIdAndEpoch | None = tagged(
        0, struct_of(LeaderIdAndEpoch), "10+", default=None
    )


class TopicProduceResponse(Struct):
    """The outcome for one topic."""

    name: str = field(string, "0-12")
    topic_id: UUID = field(uuid, "13+")
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse))


class NodeEndpoint(Struct):
    """Where a leader named above can be reached."""

    node_id: int = field(int32)
    host: str = field(string)
    port: int = field(int32)
    rack: str | None = field(string, nullable="0+")


class ProduceResponse(Message, api=ApiKey.PRODUCE):
    """The outcome for each partition of the request."""

    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse))
    throttle_time_ms: int = field(int32, "1+")
    node_endpoints: list[NodeEndpoint] = tagged(0, array(NodeEndpoint), "10+")
