"""Metadata: which brokers there are, which topics, and who leads their partitions."""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int16, int32, string, uuid
from waystation.wire.versions import ApiKey

NOT_ASKED = -(1 << 31)
"""Authorized operations that the client did not ask for."""


class MetadataRequestTopic(Struct):
    """A topic by its name or, since v10, by its id with a null name."""

    topic_id: UUID = field(uuid, "10+")
    name: str | None = field(string, nullable="10+")


class MetadataRequest(Message, api=ApiKey.METADATA):
    """Asks about some topics; null means all of them, which v0 spells as an empty list."""

    topics: list[MetadataRequestTopic] | None = field(array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = field(boolean, "4+", default=True)
    include_cluster_authorized_operations: bool = field(boolean, "8-10")
    include_topic_authorized_operations: bool = field(boolean, "8+")


class MetadataResponseBroker(Struct):
    """Where a broker can be reached."""

    node_id: int = field(int32)
    host: str = field(string)
    port: int = field(int32)
    rack: str | None = field(string, "1+", nullable="1+")


class MetadataResponsePartition(Struct):
    """Who leads a partition and who follows; a leader of -1 is none."""

    error_code: int = field(int16)
    partition_index: int = field(int32)
    leader_id: int = field(int32)
    leader_epoch: int = field(int32, "7+", default=-1)
    replica_nodes: list[int] = field(array(int32))
    isr_nodes: list[int] = field(array(int32))
    offline_replicas: list[int] = field(array(int32), "5+")


class MetadataResponseTopic(Struct):
    """A topic, or why it is not shown; the name is null for an id that no topic has."""

    error_code: int = field(int16)
    name: str | None = field(string, nullable="12+")
    topic_id: UUID = field(uuid, "10+")
    is_internal: bool = field(boolean, "1+")
    partitions: list[MetadataResponsePartition] = field(array(MetadataResponsePartition))
    topic_authorized_operations: int = field(int32, "8+", default=NOT_ASKED)


class MetadataResponse(Message, api=ApiKey.METADATA):
    """The cluster as this node knows it."""

    throttle_time_ms: int = field(int32, "3+")
    brokers: list[MetadataResponseBroker] = field(array(MetadataResponseBroker))
    cluster_id: str | None = field(string, "2+", nullable="2+")
    controller_id: int = field(int32, "1+", default=-1)
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic))
    # Since v11 this is asked of DescribeCluster instead.
    cluster_authorized_operations: int = field(int32, "8-10", default=NOT_ASKED)
    error_code: int = field(int16, "13+")
