"""DescribeProducers: the producers that a partition remembers, and their open transactions."""

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from waystation.model.errors import WaystationError


def answer(broker: Broker, call: Call[DescribeProducersRequest]) -> DescribeProducersResponse:
    """What each partition asked about knows of its producers."""
    topics = [
        TopicResponse(
            name=topic.name,
            partitions=[_partition(broker, topic.name, index) for index in topic.partition_indexes],
        )
        for topic in call.message.topics
    ]
    return DescribeProducersResponse(topics=topics)


def _partition(broker: Broker, topic: str, index: int) -> PartitionResponse:
    try:
        partition = broker.replicas.get(topic, index)
        partition.check_epoch(-1)
    except WaystationError as error:
        code, message = told(error)
        return PartitionResponse(partition_index=index, error_code=code, error_message=message)
    active = [
        ProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.txn_start,
        )
        for producer in partition.log.producers.active()
    ]
    return PartitionResponse(partition_index=index, active_producers=active)
