"""QueueStatus: how queues stand at their leaders (``docs/protocol/queues.md``)."""

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.messages.queue_status import (
    QueueStatusPartition,
    QueueStatusRequest,
    QueueStatusResponse,
)
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicId


def answer(broker: Broker, call: Call[QueueStatusRequest]) -> None:
    """Counts as they are now; a queue that is not here is not loaded for this."""
    request = call.message
    topic_id = TopicId(request.topic_id)
    call.reply(
        QueueStatusResponse(
            partitions=[
                _status(broker, request.group_id, topic_id, index) for index in request.partitions
            ]
        )
    )


def _status(
    broker: Broker, group_id: str, topic_id: TopicId, partition: int
) -> QueueStatusPartition:
    try:
        broker.queues.check_led(topic_id, partition)
        host = broker.queues.find(group_id, topic_id, partition)
    except WaystationError as error:
        code, message = told(error)
        return QueueStatusPartition(
            partition_index=partition, error_code=code, error_message=message
        )
    if host is None or host.leader is None:
        return QueueStatusPartition(partition_index=partition)
    counts = host.leader.queue.counts()
    return QueueStatusPartition(
        partition_index=partition,
        in_use=True,
        start_offset=counts.start,
        end_offset=counts.end,
        available=counts.available,
        waiting=counts.waiting,
        in_flight=counts.acquired,
        dying=counts.archiving,
        settled=counts.settled,
    )
