"""JoinGroup: become or stay a member of a classic group, and wait until all have joined.

The answer is the new generation.  Its leader learns who else is in it and what they read, and
hands out assignments by SyncGroup.
"""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int16, int32, octets, string
from waystation.wire.versions import ApiKey

AS_SESSION_TIMEOUT = -1
"""The rebalance time-out of v0, which has no field for it."""


class JoinGroupRequestProtocol(Struct):
    """A way of assigning that the member knows, and what it has to say for it."""

    name: str = field(string)
    metadata: bytes = field(octets)


class JoinGroupRequest(Message, api=ApiKey.JOIN_GROUP):
    """Joins; a new member has no id yet and, since v4, is told one and joins again with it."""

    group_id: str = field(string)
    session_timeout_ms: int = field(int32)
    rebalance_timeout_ms: int = field(int32, "1+", default=AS_SESSION_TIMEOUT)
    member_id: str = field(string)
    group_instance_id: str | None = field(string, "5+", nullable="5+")
    protocol_type: str = field(string)
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol))
    reason: str | None = field(string, "8+", nullable="8+")


class JoinGroupResponseMember(Struct):
    """One of the generation, for its leader's eyes."""

    member_id: str = field(string)
    group_instance_id: str | None = field(string, "5+", nullable="5+")
    metadata: bytes = field(octets)


class JoinGroupResponse(Message, api=ApiKey.JOIN_GROUP):
    """The new generation; the list of members is empty for all but its leader."""

    throttle_time_ms: int = field(int32, "2+")
    error_code: int = field(int16)
    generation_id: int = field(int32, default=-1)
    protocol_type: str | None = field(string, "7+", nullable="7+")
    protocol_name: str | None = field(string, nullable="7+", default="")
    leader: str = field(string)
    skip_assignment: bool = field(boolean, "9+")
    member_id: str = field(string)
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember))
