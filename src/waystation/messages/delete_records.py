"""DeleteRecords: moves the start of logs forward."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, string
from waystation.wire.versions import ApiKey

HIGH_WATERMARK = -1
"""As an offset: delete everything that readers can see."""


class DeleteRecordsPartition(Struct):
    """Everything before ``offset`` goes."""

    partition_index: int = field(int32)
    offset: int = field(int64)


class DeleteRecordsTopic(Struct):
    """The partitions of one topic."""

    name: str = field(string)
    partitions: list[DeleteRecordsPartition] = field(array(DeleteRecordsPartition))


class DeleteRecordsRequest(Message, api=ApiKey.DELETE_RECORDS):
    """Deletes the oldest records of partitions."""

    topics: list[DeleteRecordsTopic] = field(array(DeleteRecordsTopic))
    timeout_ms: int = field(int32)


class DeleteRecordsPartitionResult(Struct):
    """The first offset that all replicas still hold; -1 with an error."""

    partition_index: int = field(int32)
    low_watermark: int = field(int64)
    error_code: int = field(int16)


class DeleteRecordsTopicResult(Struct):
    """The outcome for one topic."""

    name: str = field(string)
    partitions: list[DeleteRecordsPartitionResult] = field(array(DeleteRecordsPartitionResult))


class DeleteRecordsResponse(Message, api=ApiKey.DELETE_RECORDS):
    """The outcome for each partition."""

    throttle_time_ms: int = field(int32)
    topics: list[DeleteRecordsTopicResult] = field(array(DeleteRecordsTopicResult))
