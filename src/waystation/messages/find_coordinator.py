"""FindCoordinator: which broker looks after a group, a transactional id or a shared partition."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int8, int16, int32, string
from waystation.wire.versions import ApiKey

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""What a key is the name of; the last since v6."""


class FindCoordinatorRequest(Message, api=ApiKey.FIND_COORDINATOR):
    """Asks for one key and, since v4, for several of one type."""

    key: str = field(string, "0-3")
    key_type: int = field(int8, "1+", default=GROUP)
    coordinator_keys: list[str] = field(array(string), "4+")


class Coordinator(Struct):
    """Who looks after one key, or why nobody does."""

    key: str = field(string, "4+")
    node_id: int = field(int32, "4+")
    host: str = field(string, "4+")
    port: int = field(int32, "4+")
    error_code: int = field(int16, "4+")
    error_message: str | None = field(string, "4+", nullable="4+")


class FindCoordinatorResponse(Message, api=ApiKey.FIND_COORDINATOR):
    """The broker to ask from now on."""

    throttle_time_ms: int = field(int32, "1+")
    error_code: int = field(int16, "0-3")
    error_message: str | None = field(string, "1-3", nullable="1-3")
    node_id: int = field(int32, "0-3")
    host: str = field(string, "0-3")
    port: int = field(int32, "0-3")
    coordinators: list[Coordinator] = field(array(Coordinator), "4+")
