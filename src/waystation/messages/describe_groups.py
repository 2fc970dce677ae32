"""DescribeGroups: the members of classic groups, and what each of them reads."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int16, int32, octets, string
from waystation.wire.versions import ApiKey

NOT_ASKED = -(1 << 31)
"""Authorized operations that the client did not ask for."""


class DescribeGroupsRequest(Message, api=ApiKey.DESCRIBE_GROUPS):
    """Asks about groups by their ids."""

    groups: list[str] = field(array(string))
    include_authorized_operations: bool = field(boolean, "3+")


class DescribedGroupMember(Struct):
    """A member; metadata and assignment are those of the group's current protocol."""

    member_id: str = field(string)
    group_instance_id: str | None = field(string, "4+", nullable="4+")
    client_id: str = field(string)
    client_host: str = field(string)
    member_metadata: bytes = field(octets)
    member_assignment: bytes = field(octets)


class DescribedGroup(Struct):
    """A group as its coordinator sees it."""

    error_code: int = field(int16)
    error_message: str | None = field(string, "6+", nullable="6+")
    group_id: str = field(string)
    group_state: str = field(string)
    protocol_type: str = field(string)
    protocol_data: str = field(string)
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember))
    authorized_operations: int = field(int32, "3+", default=NOT_ASKED)


class DescribeGroupsResponse(Message, api=ApiKey.DESCRIBE_GROUPS):
    """Each group of the request."""

    throttle_time_ms: int = field(int32, "1+")
    groups: list[DescribedGroup] = field(array(DescribedGroup))
