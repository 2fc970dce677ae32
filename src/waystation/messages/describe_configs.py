"""DescribeConfigs: the options of topics and brokers, and where each value comes from."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int8, int16, int32, string
from waystation.wire.versions import ApiKey


class DescribeConfigsResource(Struct):
    """A topic (type 2) or a broker (type 4), and the options asked for; null means all."""

    resource_type: int = field(int8)
    resource_name: str = field(string)
    configuration_keys: list[str] | None = field(array(string), nullable="0+")


class DescribeConfigsRequest(Message, api=ApiKey.DESCRIBE_CONFIGS):
    """Asks for options."""

    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource))
    include_synonyms: bool = field(boolean, "1+")
    include_documentation: bool = field(boolean, "3+")


class DescribeConfigsSynonym(Struct):
    """Another place that sets the option; the first one listed wins."""

    name: str = field(string, "1+")
    value: str | None = field(string, "1+", nullable="0+")
    source: int = field(int8, "1+")


class DescribeConfigsResourceResult(Struct):
    """One option; a sensitive one has a null value."""

    name: str = field(string)
    value: str | None = field(string, nullable="0+")
    read_only: bool = field(boolean)
    config_source: int = field(int8, "1+", default=-1)
    is_sensitive: bool = field(boolean)
    synonyms: list[DescribeConfigsSynonym] = field(array(DescribeConfigsSynonym), "1+")
    config_type: int = field(int8, "3+")
    documentation: str | None = field(string, "3+", nullable="0+")


class DescribeConfigsResult(Struct):
    """The options of one resource."""

    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    resource_type: int = field(int8)
    resource_name: str = field(string)
    configs: list[DescribeConfigsResourceResult] = field(array(DescribeConfigsResourceResult))


class DescribeConfigsResponse(Message, api=ApiKey.DESCRIBE_CONFIGS):
    """The options of each resource."""

    throttle_time_ms: int = field(int32)
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult))
