"""DeleteTopics: topics and all their records, by name or by id."""

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from waystation.model.errors import ErrorCode, InvalidRequestError, WaystationError
from waystation.model.ids import NO_TOPIC_ID, TopicId


class TopicDeletionDisabledError(WaystationError):
    """``delete.topic.enable`` is off."""

    code = ErrorCode.TOPIC_DELETION_DISABLED


async def answer(broker: Broker, call: Call[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    """The outcome for each topic."""
    asked = call.message.topics or [
        DeleteTopicState(name=name) for name in call.message.topic_names
    ]
    return DeleteTopicsResponse(responses=[await _delete(broker, one) for one in asked])


async def _delete(broker: Broker, asked: DeleteTopicState) -> DeletableTopicResult:
    result = DeletableTopicResult(name=asked.name, topic_id=asked.topic_id)
    try:
        if not broker.settings.delete_topic_enable:
            raise TopicDeletionDisabledError("this broker has delete.topic.enable=false")
        if asked.name is not None and asked.topic_id != NO_TOPIC_ID:
            raise InvalidRequestError("a topic is named by its name or by its id, not by both")
        topic = (
            broker.image.topic_by_id(TopicId(asked.topic_id))
            if asked.name is None
            else broker.image.topic(asked.name)
        )
        result.name, result.topic_id = topic.name, topic.id
        broker.check_writable(topic.name)
        await broker.topics.delete(topic.name)
    except WaystationError as error:
        result.error_code, result.error_message = error.code, str(error)
    return result
