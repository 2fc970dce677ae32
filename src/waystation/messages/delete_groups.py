"""DeleteGroups: groups without members, and their offsets."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, string
from waystation.wire.versions import ApiKey


class DeleteGroupsRequest(Message, api=ApiKey.DELETE_GROUPS):
    """Deletes groups by their ids."""

    groups_names: list[str] = field(array(string))


class DeletableGroupResult(Struct):
    """The outcome for one group."""

    group_id: str = field(string)
    error_code: int = field(int16)


class DeleteGroupsResponse(Message, api=ApiKey.DELETE_GROUPS):
    """The outcome for each group of the request."""

    throttle_time_ms: int = field(int32)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult))
