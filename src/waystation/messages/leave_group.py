"""LeaveGroup: members that go at once, instead of being missed after their time-out."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, string
from waystation.wire.versions import ApiKey


class MemberIdentity(Struct):
    """One who leaves; by instance id alone where an administrator removes a static member."""

    member_id: str = field(string, "3+")
    group_instance_id: str | None = field(string, "3+", nullable="3+")
    reason: str | None = field(string, "5+", nullable="5+")


class LeaveGroupRequest(Message, api=ApiKey.LEAVE_GROUP):
    """Takes one member out of its group and, since v3, any number."""

    group_id: str = field(string)
    member_id: str = field(string, "0-2")
    members: list[MemberIdentity] = field(array(MemberIdentity), "3+")


class MemberResponse(Struct):
    """Whether one of them has left."""

    member_id: str = field(string, "3+")
    group_instance_id: str | None = field(string, "3+", nullable="3+")
    error_code: int = field(int16, "3+")


class LeaveGroupResponse(Message, api=ApiKey.LEAVE_GROUP):
    """The outcome for the group and, since v3, for each member."""

    throttle_time_ms: int = field(int32, "1+")
    error_code: int = field(int16)
    members: list[MemberResponse] = field(array(MemberResponse), "3+")
