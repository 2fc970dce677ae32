"""ListConfigResources: what has options; before version 1 it listed clients' metrics only."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int8, int16, int32, string
from waystation.wire.versions import ApiKey

CLIENT_METRICS = 16


class ListConfigResourcesRequest(Message, api=ApiKey.LIST_CONFIG_RESOURCES):
    """The types that are asked about; none for all."""

    resource_types: list[int] = field(array(int8), "1+")


class ConfigResource(Struct):
    """Something that has options."""

    resource_name: str = field(string)
    resource_type: int = field(int8, "1+", default=CLIENT_METRICS)


class ListConfigResourcesResponse(Message, api=ApiKey.LIST_CONFIG_RESOURCES):
    """All of those types."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    config_resources: list[ConfigResource] = field(array(ConfigResource))
