"""ApiVersions: what this broker speaks, for clients of any age.

A version of this request that we do not speak is answered all the same, in version 0 with the
error and the list: it is how a newer client learns to ask again in an older way.
"""

import re

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from waystation.model.errors import ErrorCode
from waystation.wire.headers import encode_response_header
from waystation.wire.versions import ApiKey, Versions

# By Kafka's numbers: the level of metadata that clients may assume (4.0), the server-side group
# protocol, transactions with an epoch each, share groups, and replicas that may lead although not
# in sync (KIP-966).  What is missing here, clients do not use.
_FEATURES = {
    "metadata.version": 25,
    "group.version": 1,
    "transaction.version": 2,
    "share.version": 1,
    "eligible.leader.replicas.version": 1,
}
# The lowest level that could be switched to, where that is not 1.
_LOWEST = {
    "transaction.version": 0,
    "share.version": 0,
    "eligible.leader.replicas.version": 0,
}
_INTRODUCES_ITSELF_FROM = 3
_LEVEL_ZERO_FROM = 4
_LEGAL_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def answer(broker: Broker, call: Call[ApiVersionsRequest]) -> ApiVersionsResponse:
    """The whole table, and the features that are switched on."""
    if call.version >= _INTRODUCES_ITSELF_FROM:
        software = (call.message.client_software_name, call.message.client_software_version)
        if not all(map(_LEGAL_SOFTWARE.fullmatch, software)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(
        api_keys=_table(),
        finalized_features_epoch=0,
        supported_features=_supported(call.version),
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in _FEATURES.items()
        ],
    )


def answer_unknown_version(correlation_id: int) -> list[bytes]:
    """The answer to a version from the future, ready to send."""
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_table())
    header = encode_response_header(ApiKey.API_VERSIONS, 0, correlation_id)
    return [header, refusal.encode(0)]


def _supported(version: int) -> list[SupportedFeatureKey]:
    """Older clients cannot read a lowest level of 0: what has one is not shown to them."""
    return [
        SupportedFeatureKey(name=name, min_version=_LOWEST.get(name, 1), max_version=level)
        for name, level in _FEATURES.items()
        if version >= _LEVEL_ZERO_FROM or _LOWEST.get(name, 1)
    ]


def _table() -> list[ApiVersion]:
    # Imported here: the registry lists this file too.
    from waystation.apis.registry import APIS

    return [_row(key, api.advertised) for key, api in APIS.items()]


def _row(key: ApiKey, versions: Versions) -> ApiVersion:
    return ApiVersion(api_key=key, min_version=versions.low, max_version=versions.high)
