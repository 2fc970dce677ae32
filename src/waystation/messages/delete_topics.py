"""DeleteTopics: topics to forget, by name or by id."""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, string, uuid
from waystation.wire.versions import ApiKey


class DeleteTopicState(Struct):
    """A topic by its name, or by its id with a null name."""

    name: str | None = field(string, "6+", nullable="6+")
    topic_id: UUID = field(uuid, "6+")


class DeleteTopicsRequest(Message, api=ApiKey.DELETE_TOPICS):
    """Deletes topics; until v5 they are ``topic_names``, since v6 ``topics``."""

    topics: list[DeleteTopicState] = field(array(DeleteTopicState), "6+")
    topic_names: list[str] = field(array(string), "0-5")
    timeout_ms: int = field(int32)


class DeletableTopicResult(Struct):
    """The outcome for one topic; the name is null for an id that no topic has."""

    name: str | None = field(string, nullable="6+")
    topic_id: UUID = field(uuid, "6+")
    error_code: int = field(int16)
    error_message: str | None = field(string, "5+", nullable="5+")


class DeleteTopicsResponse(Message, api=ApiKey.DELETE_TOPICS):
    """The outcome for each topic."""

    throttle_time_ms: int = field(int32, "1+")
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult))
