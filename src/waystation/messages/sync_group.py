"""SyncGroup: the leader of a generation hands out assignments, everyone fetches theirs."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, octets, string
from waystation.wire.versions import ApiKey


class SyncGroupRequestAssignment(Struct):
    """What one member shall read, in words that only members understand."""

    member_id: str = field(string)
    assignment: bytes = field(octets)


class SyncGroupRequest(Message, api=ApiKey.SYNC_GROUP):
    """Asks for one's assignment; the leader's request carries all of them."""

    group_id: str = field(string)
    generation_id: int = field(int32)
    member_id: str = field(string)
    group_instance_id: str | None = field(string, "3+", nullable="3+")
    protocol_type: str | None = field(string, "5+", nullable="5+")
    protocol_name: str | None = field(string, "5+", nullable="5+")
    assignments: list[SyncGroupRequestAssignment] = field(array(SyncGroupRequestAssignment))


class SyncGroupResponse(Message, api=ApiKey.SYNC_GROUP):
    """The member's assignment."""

    throttle_time_ms: int = field(int32, "1+")
    error_code: int = field(int16)
    protocol_type: str | None = field(string, "5+", nullable="5+")
    protocol_name: str | None = field(string, "5+", nullable="5+")
    assignment: bytes = field(octets)
