"""AlterReplicaLogDirs: replicas of this broker move to other data directories of it."""

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from waystation.model.errors import ErrorCode, WaystationError
from waystation.model.ids import TopicPartition


def answer(broker: Broker, call: Call[AlterReplicaLogDirsRequest]) -> AlterReplicaLogDirsResponse:
    """Whether each move was taken; DescribeLogDirs shows them until they are done."""
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in call.message.dirs:
        for topic in directory.topics:
            results = topics.setdefault(topic.name, [])
            results += [_moved(broker, topic.name, one, directory.path) for one in topic.partitions]
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=results)
            for name, results in topics.items()
        ]
    )


def _moved(broker: Broker, topic: str, number: int, path: str) -> AlterReplicaLogDirPartitionResult:
    told = AlterReplicaLogDirPartitionResult(partition_index=number, error_code=ErrorCode.NONE)
    try:
        broker.relocations.ask(TopicPartition(topic, number), path)
    except WaystationError as error:
        told.error_code = error.code
    return told
