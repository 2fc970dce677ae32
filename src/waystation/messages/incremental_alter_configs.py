"""IncrementalAlterConfigs: changes some options of a resource and leaves the others."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int8, int16, int32, string
from waystation.wire.versions import ApiKey

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Config operations; the last two add to and take from options that are lists."""


class AlterableConfig(Struct):
    """One option and what to do with it; only DELETE has no value."""

    name: str = field(string)
    config_operation: int = field(int8)
    value: str | None = field(string, nullable="0+")


class AlterConfigsResource(Struct):
    """A topic (type 2) or a broker (type 4), and the options to change."""

    resource_type: int = field(int8)
    resource_name: str = field(string)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


class IncrementalAlterConfigsRequest(Message, api=ApiKey.INCREMENTAL_ALTER_CONFIGS):
    """Changes options, or with ``validate_only`` says whether it could."""

    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(boolean)


class AlterConfigsResourceResponse(Struct):
    """The outcome for one resource."""

    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    resource_type: int = field(int8)
    resource_name: str = field(string)


class IncrementalAlterConfigsResponse(Message, api=ApiKey.INCREMENTAL_ALTER_CONFIGS):
    """The outcome for each resource."""

    throttle_time_ms: int = field(int32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
