"""ShareAcknowledge: a consumer of a queue says what became of what it acquired, and no more."""

from uuid import UUID

from waystation.messages.share_fetch import AcknowledgementBatch
from waystation.wire.message import Message, Struct
from waystation.wire.schema import (
    array,
    boolean,
    field,
    int16,
    int32,
    string,
    struct_of,
    tagged,
    uuid,
)
from waystation.wire.versions import ApiKey


class AcknowledgePartition(Struct):
    """What to acknowledge in one partition."""

    partition_index: int = field(int32)
    acknowledgement_batches: list[AcknowledgementBatch] = field(array(AcknowledgementBatch))


class AcknowledgeTopic(Struct):
    """Partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[AcknowledgePartition] = field(array(AcknowledgePartition))


class ShareAcknowledgeRequest(Message, api=ApiKey.SHARE_ACKNOWLEDGE):
    """One request of a session, which ShareFetch opens."""

    group_id: str | None = field(string, nullable="0+")
    member_id: str | None = field(string, nullable="0+")
    share_session_epoch: int = field(int32)
    is_renew_ack: bool = field(boolean, "2+")
    topics: list[AcknowledgeTopic] = field(array(AcknowledgeTopic))
    # Our own: of what was acquired by receipt, so that there is no session.
    by_receipt: bool = tagged(10_000, boolean, "1+")
    # Our own: how long what is released waits, and what is renewed is locked; 0 as the group says.
    for_ms: int = tagged(10_001, int32, "1+")


class LeaderIdAndEpoch(Struct):
    """Who leads instead."""

    leader_id: int = field(int32)
    leader_epoch: int = field(int32)


class PartitionData(Struct):
    """The outcome for one partition."""

    partition_index: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    current_leader: LeaderIdAndEpoch = field(struct_of(LeaderIdAndEpoch))
    # Our own: what became of each batch, by receipts, in the order of the request.
    batch_error_codes: list[int] = tagged(10_000, array(int16), "1+")


class ShareAcknowledgeTopicResponse(Struct):
    """The outcome for the partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[PartitionData] = field(array(PartitionData))


class NodeEndpoint(Struct):
    """Where a leader named above can be reached."""

    node_id: int = field(int32)
    host: str = field(string)
    port: int = field(int32)
    rack: str | None = field(string, nullable="0+")


class ShareAcknowledgeResponse(Message, api=ApiKey.SHARE_ACKNOWLEDGE):
    """The outcome for each partition; since v2 for how long what was renewed is locked."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    acquisition_lock_timeout_ms: int = field(int32, "2+")
    responses: list[ShareAcknowledgeTopicResponse] = field(array(ShareAcknowledgeTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint))
