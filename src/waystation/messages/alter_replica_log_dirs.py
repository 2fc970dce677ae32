"""AlterReplicaLogDirs: moves replicas between the data directories of one broker."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, string
from waystation.wire.versions import ApiKey


class AlterReplicaLogDirTopic(Struct):
    """Partitions of one topic."""

    name: str = field(string)
    partitions: list[int] = field(array(int32))


class AlterReplicaLogDir(Struct):
    """A directory, and what shall lie in it."""

    path: str = field(string)
    topics: list[AlterReplicaLogDirTopic] = field(array(AlterReplicaLogDirTopic))


class AlterReplicaLogDirsRequest(Message, api=ApiKey.ALTER_REPLICA_LOG_DIRS):
    """Asks for moves; they are under way, not done, when this is answered."""

    dirs: list[AlterReplicaLogDir] = field(array(AlterReplicaLogDir))


class AlterReplicaLogDirPartitionResult(Struct):
    """Whether one partition's move was taken."""

    partition_index: int = field(int32)
    error_code: int = field(int16)


class AlterReplicaLogDirTopicResult(Struct):
    """The partitions of one topic."""

    topic_name: str = field(string)
    partitions: list[AlterReplicaLogDirPartitionResult] = field(
        array(AlterReplicaLogDirPartitionResult)
    )


class AlterReplicaLogDirsResponse(Message, api=ApiKey.ALTER_REPLICA_LOG_DIRS):
    """One result per partition that was named."""

    throttle_time_ms: int = field(int32)
    results: list[AlterReplicaLogDirTopicResult] = field(array(AlterReplicaLogDirTopicResult))
