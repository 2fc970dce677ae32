"""What an admin is told about topics, options, brokers and their disks."""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from waystation.client.metadata import BrokerView, PartitionView
from waystation.model.errors import ErrorCode
from waystation.model.ids import NodeId, ProducerId, TopicId, TopicPartition
from waystation.model.offsets import Millis, Offset

__all__ = [
    "ClusterDescription",
    "ConfigEntry",
    "ConfigSource",
    "CreatedTopic",
    "LogDir",
    "ProducerDescription",
    "TopicDescription",
]


class CreatedTopic(NamedTuple):
    """A new topic; -1 where an old broker does not say."""

    name: str
    id: TopicId
    partitions: int
    replication_factor: int


class TopicDescription(NamedTuple):
    """A topic and who holds its partitions, in their order."""

    name: str
    id: TopicId
    internal: bool
    partitions: tuple[PartitionView, ...]


class ConfigSource(IntEnum):
    """Where an option's value comes from; the nearest to the topic wins."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigEntry(NamedTuple):
    """One option of a topic or broker; a sensitive one has no value to show."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    documentation: str | None
    given_as: str = ""
    """The option that gave the value, where another did: ``log.retention.ms``, ``profile``."""


class ClusterDescription(NamedTuple):
    """The members of a cluster and who of them is in charge."""

    cluster_id: str
    controller: NodeId
    brokers: tuple[BrokerView, ...]


class LogDir(NamedTuple):
    """A data directory of one broker; ``-1`` where the broker does not say."""

    node: NodeId
    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    partitions: dict[TopicPartition, int]
    """The bytes that each partition takes here."""
    future: Mapping[TopicPartition, int] = {}
    """The bytes of partitions that are being moved here from another directory."""


class ProducerDescription(NamedTuple):
    """What a partition remembers of an idempotent producer."""

    producer: ProducerId
    epoch: int
    last_sequence: int
    last_timestamp: Millis
    coordinator_epoch: int
    """Of the coordinator that ended its last transaction here; -1 if none has."""
    transaction_start: Offset | None
    """Where its open transaction begins; ``None`` without one."""
