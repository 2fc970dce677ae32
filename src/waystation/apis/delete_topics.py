"""DeleteTopics: topics and all their records, or views, which have none, by name or by id."""

from waystation.apis.call import Call
from waystation.apis.deadline import within
from waystation.apis.repeated import repeated
from waystation.broker.broker import Broker
from waystation.cluster.views import shown, shown_by_id
from waystation.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from waystation.model.errors import ErrorCode, InvalidRequestError, WaystationError
from waystation.model.ids import NO_TOPIC_ID, TopicId

_DISABLED_FROM_VERSION = 3


class TopicDeletionDisabledError(WaystationError):
    """``delete.topic.enable`` is off; clients that do not know this code get an older one."""

    code = ErrorCode.TOPIC_DELETION_DISABLED

    def __init__(self, version: int) -> None:
        if version < _DISABLED_FROM_VERSION:
            self.code = ErrorCode.INVALID_REQUEST
        super().__init__("this broker has delete.topic.enable=false")


async def answer(broker: Broker, call: Call[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    """The outcome for each topic."""
    asked = call.message.topics or [
        DeleteTopicState(name=name) for name in call.message.topic_names
    ]
    twice = repeated((one.name, one.topic_id) for one in asked)
    once = {(one.name, one.topic_id): one for one in asked}
    return DeleteTopicsResponse(
        responses=[
            await _delete(broker, one, call.version, call.message.timeout_ms, twice=key in twice)
            for key, one in once.items()
        ]
    )


async def _delete(
    broker: Broker, asked: DeleteTopicState, version: int, timeout_ms: int, *, twice: bool
) -> DeletableTopicResult:
    result = DeletableTopicResult(name=asked.name, topic_id=asked.topic_id)
    try:
        if not broker.settings.delete_topic_enable:
            raise TopicDeletionDisabledError(version)
        if (asked.name is None) == (asked.topic_id == NO_TOPIC_ID):
            raise InvalidRequestError("a topic is named by its name or by its id, by one of them")
        if twice:
            raise InvalidRequestError("the topic is named twice")
        topic = (
            shown_by_id(broker.image, TopicId(asked.topic_id))
            if asked.name is None
            else shown(broker.image, asked.name)
        )
        result.name, result.topic_id = topic.name, topic.id
        broker.check_writable(topic.name)
        await within(timeout_ms, broker.topics.delete(topic.name))
    except WaystationError as error:
        result.error_code, result.error_message = error.code, str(error)
    return result
