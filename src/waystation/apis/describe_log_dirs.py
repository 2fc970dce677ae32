"""DescribeLogDirs: the data directories of this broker and the logs in them."""

from collections import defaultdict

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from waystation.model.errors import ErrorCode
from waystation.storage.directory import DataDirectory


def answer(broker: Broker, call: Call[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    """Every directory, with the partitions asked for, or all of them."""
    asked = call.message.topics
    wanted = (
        None
        if asked is None
        else {(topic.topic, index) for topic in asked for index in topic.partitions}
    )
    return DescribeLogDirsResponse(
        results=[_directory(broker, directory, wanted) for directory in broker.directories]
    )


def _directory(
    broker: Broker, directory: DataDirectory, wanted: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    told = DescribeLogDirsResult(log_dir=str(directory.path))
    if directory.offline is not None:
        told.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return told
    topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for partition in broker.replicas:
        if partition.log.directory is directory and (wanted is None or partition.name in wanted):
            topics[partition.name.topic].append(
                DescribeLogDirsPartition(
                    partition_index=partition.name.partition,
                    partition_size=partition.log.size_bytes,
                )
            )
    told.topics = [
        DescribeLogDirsTopic(name=name, partitions=found) for name, found in topics.items()
    ]
    told.total_bytes, told.usable_bytes = directory.total_bytes(), directory.free_bytes()
    return told
