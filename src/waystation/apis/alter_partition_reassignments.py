"""AlterPartitionReassignments: other replicas for partitions, or the old ones again."""

from waystation.apis.call import Call
from waystation.apis.deadline import within
from waystation.apis.errors import told
from waystation.apis.repeated import repeated
from waystation.broker.broker import Broker
from waystation.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from waystation.model.errors import (
    InvalidRequestError,
    RequestTimedOutError,
    WaystationError,
)
from waystation.model.ids import NodeId, TopicPartition


async def answer(
    broker: Broker, call: Call[AlterPartitionReassignmentsRequest]
) -> AlterPartitionReassignmentsResponse:
    """Whether each wish was taken; the moves themselves take their time."""
    request = call.message
    wished = [
        (
            TopicPartition(topic.name, one.partition_index),
            None if one.replicas is None else [NodeId(node) for node in one.replicas],
        )
        for topic in request.topics
        for one in topic.partitions
    ]
    twice = repeated(where for where, _ in wished)
    outcomes: dict[TopicPartition, WaystationError | None] = {
        where: InvalidRequestError(f"{where.topic}-{where.partition} is named twice")
        for where in twice
    }
    targets = {where: target for where, target in wished if where not in outcomes}
    allowed = request.allow_replication_factor_change
    asking = broker.moves.reassign(targets, allow_factor_change=allowed)
    try:
        outcomes |= await within(request.timeout_ms, asking)
    except RequestTimedOutError as error:
        outcomes |= dict.fromkeys(targets, error)
    topics: dict[str, list[ReassignablePartitionResponse]] = {}
    for where in dict(wished):
        code, message = told(outcomes[where])
        topics.setdefault(where.topic, []).append(
            ReassignablePartitionResponse(
                partition_index=where.partition, error_code=code, error_message=message
            )
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allowed,
        responses=[
            ReassignableTopicResponse(name=name, partitions=some) for name, some in topics.items()
        ],
    )
