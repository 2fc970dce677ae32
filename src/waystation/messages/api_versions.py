"""ApiVersions: what a client asks first, to learn which versions it may use."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int16, int32, int64, string, tagged
from waystation.wire.versions import ApiKey


class ApiVersionsRequest(Message, api=ApiKey.API_VERSIONS):
    """Asks for the versions and, since v3, introduces the client's software."""

    client_software_name: str = field(string, "3+")
    client_software_version: str = field(string, "3+")


class ApiVersion(Struct):
    """The inclusive range of versions that is spoken of one API."""

    api_key: int = field(int16)
    min_version: int = field(int16)
    max_version: int = field(int16)


class SupportedFeatureKey(Struct):
    """The levels of a cluster feature that this node could work at."""

    name: str = field(string, "3+")
    min_version: int = field(int16, "3+")
    max_version: int = field(int16, "3+")


class FinalizedFeatureKey(Struct):
    """The level of a cluster feature that is switched on."""

    name: str = field(string, "3+")
    max_version_level: int = field(int16, "3+")
    min_version_level: int = field(int16, "3+")


class ApiVersionsResponse(Message, api=ApiKey.API_VERSIONS):
    """The versions; with an error 35 it is sent as v0, which every client can read."""

    error_code: int = field(int16)
    api_keys: list[ApiVersion] = field(array(ApiVersion))
    throttle_time_ms: int = field(int32, "1+")
    supported_features: list[SupportedFeatureKey] = tagged(0, array(SupportedFeatureKey), "3+")
    finalized_features_epoch: int = tagged(1, int64, "3+", default=-1)
    finalized_features: list[FinalizedFeatureKey] = tagged(2, array(FinalizedFeatureKey), "3+")
    zk_migration_ready: bool = tagged(3, boolean, "3+")
