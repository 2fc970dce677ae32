"""DeleteShareGroupOffsets: a share group forgets its queues over topics that nobody in it reads."""

from waystation.apis.call import Call
from waystation.apis.coordinated import nameless
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from waystation.model.errors import UnknownTopicError, WaystationError


async def answer(
    broker: Broker, call: Call[DeleteShareGroupOffsetsRequest]
) -> DeleteShareGroupOffsetsResponse:
    """The outcome for each topic."""
    request = call.message
    try:
        if not request.group_id:
            raise nameless()
        machine = broker.groups.host_of(request.group_id).machine
        if request.group_id not in machine.shares:
            raise machine.no_share_group(request.group_id)
    except WaystationError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=str(error))
    names = list(dict.fromkeys(one.topic_name for one in request.topics))
    return DeleteShareGroupOffsetsResponse(
        responses=[await _delete(broker, request.group_id, name) for name in names]
    )


async def _delete(broker: Broker, group_id: str, name: str) -> DeleteShareGroupOffsetsResponseTopic:
    told_of = DeleteShareGroupOffsetsResponseTopic(topic_name=name)
    try:
        topic = broker.image.topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"there is no topic {name!r}")
        told_of.topic_id = topic.id
        host = broker.groups.host_of(group_id)
        await broker.share_orders.delete_queues(host, group_id, topic.id)
    except WaystationError as error:
        told_of.error_code, told_of.error_message = told(error)
    return told_of
