"""DeleteRecords: truncates history by moving the start of logs forward."""

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from waystation.model.errors import WaystationError
from waystation.model.offsets import Offset


async def answer(broker: Broker, call: Call[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    """The new start of each log, once it would survive a crash."""
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[await _delete(broker, topic.name, asked) for asked in topic.partitions],
        )
        for topic in call.message.topics
    ]
    return DeleteRecordsResponse(topics=topics)


async def _delete(
    broker: Broker, topic: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    told = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
    try:
        broker.check_writable(topic)
        partition = broker.replicas.get(topic, asked.partition_index)
        told.low_watermark = await broker.truncate(partition, Offset(asked.offset))
    except WaystationError as error:
        told.error_code = error.code
    return told
