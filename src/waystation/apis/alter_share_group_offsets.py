"""AlterShareGroupOffsets: an administrator moves the queues of a share group without members.

A group that does not exist comes into being, so that its queues begin where they shall.
"""

from waystation.apis.call import Call
from waystation.apis.coordinated import nameless
from waystation.apis.errors import Told, told
from waystation.broker.broker import Broker
from waystation.broker.share_orders import Place
from waystation.cluster.image import ClusterImage
from waystation.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from waystation.model.errors import UnknownTopicError, WaystationError
from waystation.model.ids import NO_TOPIC_ID
from waystation.model.offsets import Offset


async def answer(
    broker: Broker, call: Call[AlterShareGroupOffsetsRequest]
) -> AlterShareGroupOffsetsResponse:
    """The outcome for each partition."""
    request, image = call.message, broker.image
    try:
        if not request.group_id:
            raise nameless()
        host = broker.groups.host_of(request.group_id)
        starts = _starts(image, request)
        errors = await broker.share_orders.move_queues(host, request.group_id, starts)
    except WaystationError as error:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=str(error))
    outcomes = {place: told(error) for place, error in errors.items()}
    return AlterShareGroupOffsetsResponse(
        responses=[_topic(image, one, outcomes) for one in request.topics]
    )


def _starts(image: ClusterImage, request: AlterShareGroupOffsetsRequest) -> dict[Place, Offset]:
    """Where queues shall begin, of partitions that there are."""
    return {
        (topic.id, one.partition_index): Offset(one.start_offset)
        for asked in request.topics
        if (topic := image.topics.get(asked.topic_name)) is not None
        for one in asked.partitions
        if 0 <= one.partition_index < len(topic.partitions)
    }


def _topic(
    image: ClusterImage, asked: AlterShareGroupOffsetsRequestTopic, outcomes: dict[Place, Told]
) -> AlterShareGroupOffsetsResponseTopic:
    topic = image.topics.get(asked.topic_name)
    topic_id = NO_TOPIC_ID if topic is None else topic.id
    partitions = []
    for one in asked.partitions:
        outcome = outcomes.get((topic_id, one.partition_index))
        if outcome is None:
            name = f"{asked.topic_name}-{one.partition_index}"
            outcome = told(UnknownTopicError(f"there is no partition {name}"))
        partitions.append(
            AlterShareGroupOffsetsResponsePartition(
                partition_index=one.partition_index,
                error_code=outcome.code,
                error_message=outcome.message,
            )
        )
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=asked.topic_name, topic_id=topic_id, partitions=partitions
    )
