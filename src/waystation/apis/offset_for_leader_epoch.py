"""OffsetForLeaderEpoch: where an epoch ends, so that readers notice a log that was cut."""

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from waystation.model.errors import WaystationError
from waystation.model.ids import LeaderEpoch


def answer(broker: Broker, call: Call[OffsetForLeaderEpochRequest]) -> OffsetForLeaderEpochResponse:
    """The end of each epoch asked for, as the leader's log has it."""
    topics = [
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[_partition(broker, topic.topic, asked) for asked in topic.partitions],
        )
        for topic in call.message.topics
    ]
    return OffsetForLeaderEpochResponse(topics=topics)


def _partition(broker: Broker, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    told = EpochEndOffset(partition=asked.partition)
    try:
        partition = broker.replicas.get_source(topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        told.leader_epoch, told.end_offset = partition.epoch_end(LeaderEpoch(asked.leader_epoch))
    except WaystationError as error:
        told.error_code = error.code
    return told
