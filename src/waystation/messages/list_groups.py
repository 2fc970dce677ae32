"""ListGroups: the groups that one broker coordinates."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, string
from waystation.wire.versions import ApiKey


class ListGroupsRequest(Message, api=ApiKey.LIST_GROUPS):
    """Asks for all groups, or for those in some states and of some types."""

    states_filter: list[str] = field(array(string), "4+")
    types_filter: list[str] = field(array(string), "5+")


class ListedGroup(Struct):
    """One group."""

    group_id: str = field(string)
    protocol_type: str = field(string)
    group_state: str = field(string, "4+")
    group_type: str = field(string, "5+")


class ListGroupsResponse(Message, api=ApiKey.LIST_GROUPS):
    """The groups of this broker; whoever wants all asks every broker."""

    throttle_time_ms: int = field(int32, "1+")
    error_code: int = field(int16)
    groups: list[ListedGroup] = field(array(ListedGroup))
