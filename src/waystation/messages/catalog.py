"""Finds the messages of an API by its key."""

from waystation.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from waystation.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from waystation.messages.fetch import FetchRequest, FetchResponse
from waystation.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from waystation.messages.metadata import MetadataRequest, MetadataResponse
from waystation.messages.produce import ProduceRequest, ProduceResponse
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey

__all__ = ["MESSAGES", "request_type", "response_type"]

MESSAGES: dict[ApiKey, tuple[type[Message], type[Message]]] = {
    ApiKey.PRODUCE: (ProduceRequest, ProduceResponse),
    ApiKey.FETCH: (FetchRequest, FetchResponse),
    ApiKey.LIST_OFFSETS: (ListOffsetsRequest, ListOffsetsResponse),
    ApiKey.METADATA: (MetadataRequest, MetadataResponse),
    ApiKey.API_VERSIONS: (ApiVersionsRequest, ApiVersionsResponse),
    ApiKey.CREATE_TOPICS: (CreateTopicsRequest, CreateTopicsResponse),
}


def request_type(api_key: ApiKey) -> type[Message]:
    """The request of an API that is spoken."""
    return MESSAGES[api_key][0]


def response_type(api_key: ApiKey) -> type[Message]:
    """The response of an API that is spoken."""
    return MESSAGES[api_key][1]
