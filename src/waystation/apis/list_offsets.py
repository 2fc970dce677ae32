"""ListOffsets: the start, the end, the newest, or the first at or after a time."""

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.messages.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from waystation.model.errors import InvalidRequestError, WaystationError
from waystation.model.ids import NO_LEADER_EPOCH
from waystation.model.offsets import NO_OFFSET, NO_TIMESTAMP, Millis, Offset
from waystation.partition.partition import Partition


def answer(broker: Broker, call: Call[ListOffsetsRequest]) -> ListOffsetsResponse:
    """An offset for each partition asked about."""
    topics = [
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[_partition(broker, topic.name, asked) for asked in topic.partitions],
        )
        for topic in call.message.topics
    ]
    return ListOffsetsResponse(topics=topics)


def _partition(
    broker: Broker, topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    told = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        partition = broker.replicas.get(topic, asked.partition_index)
        partition.check_epoch(asked.current_leader_epoch)
        told.offset, told.timestamp = _find(partition, asked.timestamp)
    except WaystationError as error:
        told.error_code = error.code
        return told
    if told.offset != NO_OFFSET:
        known = partition.log.epochs.epoch_at(Offset(told.offset))
        told.leader_epoch = known if known != NO_LEADER_EPOCH else partition.leadership.epoch
    return told


def _find(partition: Partition, timestamp: int) -> tuple[Offset, Millis]:
    log = partition.log
    match timestamp:
        case _ if timestamp >= 0:
            found = log.find_by_time(Millis(timestamp))
        case _ if timestamp == LATEST:
            return partition.high_watermark, NO_TIMESTAMP
        case _ if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return log.log_start, NO_TIMESTAMP
        case _ if timestamp == MAX_TIMESTAMP:
            found = log.max_timestamp()
        case _ if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            # Nothing is ever moved to remote storage.
            return NO_OFFSET, NO_TIMESTAMP
        case _:
            raise InvalidRequestError(f"{timestamp} is neither a time nor a special offset")
    if found is None or found[0] >= partition.high_watermark:
        return NO_OFFSET, NO_TIMESTAMP
    return found
