"""ShareFetch: a consumer of a queue acknowledges what it has done and acquires more.

A session per consumer and broker lets it name only what changed: an epoch of 0 opens one, -1
closes it, and all that the consumer held there is released.
"""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import (
    Part,
    array,
    boolean,
    field,
    int8,
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

OPEN_SESSION, CLOSE_SESSION = 0, -1
"""Session epochs that are none."""
BY_BATCH, BY_LIMIT = 0, 1
"""How strictly ``max_records`` is meant: up to the end of a batch, or exactly."""
NO_LIMIT_BYTES = (1 << 31) - 1


class AcknowledgementBatch(Struct):
    """What became of a range of offsets, the last one included.

    One type says it of all of them, else there is one per offset: 0 there is no such record,
    1 accept, 2 release, 3 reject, and since v2 4 renew.
    """

    first_offset: int = field(int64)
    last_offset: int = field(int64)
    acknowledge_types: list[int] = field(array(int8))
    # Our own: why a consumer rejects them, for whoever looks at the dead letters.
    reason: str = tagged(10_000, string, "1+")
    # Our own: whose receipt holds them; by receipts, several members are named in one request.
    member_id: str = tagged(10_001, string, "1+")


class FetchPartition(Struct):
    """A partition to acquire from, and what to acknowledge in it first."""

    partition_index: int = field(int32)
    acknowledgement_batches: list[AcknowledgementBatch] = field(array(AcknowledgementBatch))


class FetchTopic(Struct):
    """Partitions of one topic."""

    topic_id: UUID = field(uuid)
    partitions: list[FetchPartition] = field(array(FetchPartition))


class ForgottenTopic(Struct):
    """Partitions that the session shall no longer read."""

    topic_id: UUID = field(uuid)
    partitions: list[int] = field(array(int32))


class ShareFetchRequest(Message, api=ApiKey.SHARE_FETCH):
    """One request of a session."""

    group_id: str | None = field(string, nullable="0+")
    member_id: str | None = field(string, nullable="0+")
    share_session_epoch: int = field(int32)
    max_wait_ms: int = field(int32)
    min_bytes: int = field(int32)
    max_bytes: int = field(int32, default=NO_LIMIT_BYTES)
    max_records: int = field(int32)
    batch_size: int = field(int32)
    share_acquire_mode: int = field(int8, "2+", default=BY_BATCH)
    is_renew_ack: bool = field(boolean, "2+")
    topics: list[FetchTopic] = field(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic))
    # Our own: there is no session; what this acquires is settled by whoever knows the member id.
    by_receipt: bool = tagged(10_000, boolean, "1+")


class LeaderIdAndEpoch(Struct):
    """Who leads instead; saves a client a Metadata request."""

    leader_id: int = field(int32)
    leader_epoch: int = field(int32)


class AcquiredRecords(Struct):
    """A range of offsets, the last one included, that is the consumer's now."""

    first_offset: int = field(int64)
    last_offset: int = field(int64)
    delivery_count: int = field(int16)


class PartitionData(Struct):
    """What one partition gave; records outside of what is acquired are to be passed over."""

    partition_index: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    acknowledge_error_code: int = field(int16)
    acknowledge_error_message: str | None = field(string, nullable="0+")
    current_leader: LeaderIdAndEpoch = field(struct_of(LeaderIdAndEpoch))
    # Unlike those of Fetch they are never null: clients refuse that.
    records: Part = field(records)
    acquired_records: list[AcquiredRecords] = field(array(AcquiredRecords))


class ShareFetchableTopicResponse(Struct):
    """What the partitions of one topic gave."""

    topic_id: UUID = field(uuid)
    partitions: list[PartitionData] = field(array(PartitionData))


class NodeEndpoint(Struct):
    """Where a leader named above can be reached."""

    node_id: int = field(int32)
    host: str = field(string)
    port: int = field(int32)
    rack: str | None = field(string, nullable="0+")


class ShareFetchResponse(Message, api=ApiKey.SHARE_FETCH):
    """What was acquired, and for how long it is the consumer's."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    acquisition_lock_timeout_ms: int = field(int32)
    responses: list[ShareFetchableTopicResponse] = field(array(ShareFetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint))
