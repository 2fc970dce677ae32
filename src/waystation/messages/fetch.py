"""Fetch: what consumers and followers read, and the batches they are given.

A session (v7+) lets a client name only what changed since its last request: an epoch of
0 opens one, -1 closes it or asks without one.
"""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import (
    Part,
    array,
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

NO_HIGH_WATERMARK = (1 << 63) - 1
"""A follower that does not say what high watermark it knows; consumers never do."""


class ReplicaState(Struct):
    """Which follower asks, in which of its lives; from v15 in place of ``replica_id``."""

    replica_id: int = field(int32, default=-1)
    replica_epoch: int = field(int64, default=-1)


class FetchPartition(Struct):
    """From where to read one partition; the epochs let a leader spot a diverged reader."""

    partition: int = field(int32)
    current_leader_epoch: int = field(int32, "9+", default=-1)
    fetch_offset: int = field(int64)
    last_fetched_epoch: int = field(int32, "12+", default=-1)
    # The follower's own log start; consumers send -1.
    log_start_offset: int = field(int64, "5+", default=-1)
    partition_max_bytes: int = field(int32)
    replica_directory_id: UUID = tagged(0, uuid, "17+")
    high_watermark: int = tagged(1, int64, "18+", default=NO_HIGH_WATERMARK)
    # Ours: the end of what the follower has on disk, which counts where durability is asked for.
    flushed_end: int = tagged(10_000, int64, "15+", default=-1)


class FetchTopic(Struct):
    """The partitions to read of one topic, known by name and since v13 by id only."""

    topic: str = field(string, "0-12")
    topic_id: UUID = field(uuid, "13+")
    partitions: list[FetchPartition] = field(array(FetchPartition))


class ForgottenTopic(Struct):
    """Partitions to drop from the session."""

    topic: str = field(string, "7-12")
    topic_id: UUID = field(uuid, "13+")
    partitions: list[int] = field(array(int32), "7+")


class FetchRequest(Message, api=ApiKey.FETCH):
    """Reads until ``min_bytes`` are there or ``max_wait_ms`` have passed."""

    cluster_id: str | None = tagged(0, string, "12+", default=None)
    replica_state: ReplicaState | None = tagged(1, struct_of(ReplicaState), "15+", default=None)
    replica_id: int = field(int32, "0-14", default=-1)
    max_wait_ms: int = field(int32)
    min_bytes: int = field(int32)
    max_bytes: int = field(int32, "3+", default=0x7FFFFFFF)
    # 0 reads everything, 1 only what is not part of an open or aborted transaction.
    isolation_level: int = field(int8, "4+")
    session_id: int = field(int32, "7+")
    session_epoch: int = field(int32, "7+", default=-1)
    topics: list[FetchTopic] = field(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), "7+")
    rack_id: str = field(string, "11+")
    # Ours: the revision of the store up to which a follower has done what it was told.
    acted_on: int = tagged(10_000, int64, "15+", default=-1)


class EpochEndOffset(Struct):
    """Where the reader's log parts from the leader's: it must truncate to here."""

    epoch: int = field(int32, default=-1)
    end_offset: int = field(int64, default=-1)


class LeaderIdAndEpoch(Struct):
    """Who leads instead; saves a client a Metadata request."""

    leader_id: int = field(int32, default=-1)
    leader_epoch: int = field(int32, default=-1)


class SnapshotId(Struct):
    """The snapshot to fetch instead; only logs of the cluster's own metadata have one."""

    end_offset: int = field(int64, default=-1)
    epoch: int = field(int32, default=-1)


class AbortedTransaction(Struct):
    """A producer whose records, from this offset to its abort marker, do not count."""

    producer_id: int = field(int64)
    first_offset: int = field(int64)


class PartitionData(Struct):
    """What one partition gave; records may be a region of a file, sent by reference."""

    partition_index: int = field(int32)
    error_code: int = field(int16)
    high_watermark: int = field(int64)
    last_stable_offset: int = field(int64, "4+", default=-1)
    log_start_offset: int = field(int64, "5+", default=-1)
    diverging_epoch: EpochEndOffset | None = tagged(
        0, struct_of(EpochEndOffset), "12+", default=None
    )
    current_leader: LeaderIdAndEpoch | None = tagged(
        1, struct_of(LeaderIdAndEpoch), "12+", default=None
    )
    snapshot_id: SnapshotId | None = tagged(2, struct_of(SnapshotId), "12+", default=None)
    # Null to readers of everything, a list to those who skip aborted transactions.
    aborted_transactions: list[AbortedTransaction] | None = field(
        array(AbortedTransaction), "4+", nullable="4+"
    )
    preferred_read_replica: int = field(int32, "11+", default=-1)
    records: Part | None = field(records, nullable="0+")


class FetchableTopicResponse(Struct):
    """What the partitions of one topic gave."""

    topic: str = field(string, "0-12")
    topic_id: UUID = field(uuid, "13+")
    partitions: list[PartitionData] = field(array(PartitionData))


class NodeEndpoint(Struct):
    """Where a leader named above can be reached."""

    node_id: int = field(int32)
    host: str = field(string)
    port: int = field(int32)
    rack: str | None = field(string, nullable="0+")


class FetchResponse(Message, api=ApiKey.FETCH):
    """The batches; within a session only partitions with news are listed."""

    throttle_time_ms: int = field(int32, "1+")
    error_code: int = field(int16, "7+")
    session_id: int = field(int32, "7+")
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = tagged(0, array(NodeEndpoint), "16+")
