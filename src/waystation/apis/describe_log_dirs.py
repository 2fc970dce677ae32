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
from waystation.partition.partition import Partition
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
        if wanted is None or partition.name in wanted:
            found = _replicas(broker, partition, directory)
            if found:
                topics[partition.name.topic] += found
    told.topics = [
        DescribeLogDirsTopic(name=name, partitions=found) for name, found in topics.items()
    ]
    told.total_bytes, told.usable_bytes = directory.total_bytes(), directory.free_bytes()
    return told


def _replicas(
    broker: Broker, partition: Partition, directory: DataDirectory
) -> list[DescribeLogDirsPartition]:
    """The log that is served, or the copy that will be, if it lies here."""
    number, found = partition.name.partition, []
    if partition.log.directory is directory:
        size = partition.log.size_bytes
        found.append(DescribeLogDirsPartition(partition_index=number, partition_size=size))
    coming = broker.relocations.future(partition.name)
    if coming is not None and coming.directory is directory:
        found.append(
            DescribeLogDirsPartition(
                partition_index=number,
                partition_size=coming.size_bytes,
                offset_lag=coming.lag,
                is_future_key=True,
            )
        )
    return found
