"""ElectLeaders: lets preferred leaders lead, or anyone where nobody else is left."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int8, int16, int32, string
from waystation.wire.versions import ApiKey

PREFERRED = 0
UNCLEAN = 1
"""Kinds of elections; version 0 knows the first only."""


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic: str = field(string)
    partitions: list[int] = field(array(int32))


class ElectLeadersRequest(Message, api=ApiKey.ELECT_LEADERS):
    """Asks for elections; null means every partition that needs one."""

    election_type: int = field(int8, "1+")
    topic_partitions: list[TopicPartitions] | None = field(array(TopicPartitions), nullable="0+")
    timeout_ms: int = field(int32, default=60000)


class PartitionResult(Struct):
    """What became of one partition's election."""

    partition_id: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")


class ReplicaElectionResult(Struct):
    """The elections of one topic."""

    topic: str = field(string)
    partition_result: list[PartitionResult] = field(array(PartitionResult))


class ElectLeadersResponse(Message, api=ApiKey.ELECT_LEADERS):
    """One result per partition that was asked for."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16, "1+")
    replica_election_results: list[ReplicaElectionResult] = field(array(ReplicaElectionResult))
