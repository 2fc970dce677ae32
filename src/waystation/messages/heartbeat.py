"""Heartbeat: a member of a classic group is alive, and learns whether it must join again."""

from waystation.wire.message import Message
from waystation.wire.schema import field, int16, int32, string
from waystation.wire.versions import ApiKey


class HeartbeatRequest(Message, api=ApiKey.HEARTBEAT):
    """Says that a member of a generation is alive."""

    group_id: str = field(string)
    generation_id: int = field(int32)
    member_id: str = field(string)
    group_instance_id: str | None = field(string, "3+", nullable="3+")


class HeartbeatResponse(Message, api=ApiKey.HEARTBEAT):
    """Nothing, or what the member has missed."""

    throttle_time_ms: int = field(int32, "1+")
    error_code: int = field(int16)
