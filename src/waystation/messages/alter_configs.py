"""AlterConfigs: replaces all options of a resource at once.

Superseded by IncrementalAlterConfigs, since whoever does not list an option resets it;
but some clients know nothing else.
"""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int8, int16, int32, string
from waystation.wire.versions import ApiKey


class AlterableConfig(Struct):
    """One option and its new value."""

    name: str = field(string)
    value: str | None = field(string, nullable="0+")


class AlterConfigsResource(Struct):
    """A topic (type 2) or a broker (type 4), and all the options it shall have."""

    resource_type: int = field(int8)
    resource_name: str = field(string)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


class AlterConfigsRequest(Message, api=ApiKey.ALTER_CONFIGS):
    """Replaces options, or with ``validate_only`` says whether it could."""

    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(boolean)


class AlterConfigsResourceResponse(Struct):
    """The outcome for one resource."""

    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    resource_type: int = field(int8)
    resource_name: str = field(string)


class AlterConfigsResponse(Message, api=ApiKey.ALTER_CONFIGS):
    """The outcome for each resource."""

    throttle_time_ms: int = field(int32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
