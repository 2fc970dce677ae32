"""DescribeLogDirs: the data directories of a broker and what lies in them."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int16, int32, int64, string
from waystation.wire.versions import ApiKey


class DescribableLogDirTopic(Struct):
    """Partitions to look for."""

    topic: str = field(string)
    partitions: list[int] = field(array(int32))


class DescribeLogDirsRequest(Message, api=ApiKey.DESCRIBE_LOG_DIRS):
    """Asks where partitions are; null means all of them."""

    topics: list[DescribableLogDirTopic] | None = field(
        array(DescribableLogDirTopic), nullable="0+"
    )


class DescribeLogDirsPartition(Struct):
    """One replica; a future one is being moved here and will replace the present one."""

    partition_index: int = field(int32)
    partition_size: int = field(int64)
    offset_lag: int = field(int64)
    is_future_key: bool = field(boolean)


class DescribeLogDirsTopic(Struct):
    """The replicas of one topic in one directory."""

    name: str = field(string)
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition))


class DescribeLogDirsResult(Struct):
    """One directory; an offline one has an error and nothing else."""

    error_code: int = field(int16)
    log_dir: str = field(string)
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic))
    total_bytes: int = field(int64, "4+", default=-1)
    usable_bytes: int = field(int64, "4+", default=-1)


class DescribeLogDirsResponse(Message, api=ApiKey.DESCRIBE_LOG_DIRS):
    """Every data directory of the broker that was asked."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16, "3+")
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult))
