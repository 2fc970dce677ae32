"""CountMatching: how many messages a partition of a view shows from an offset on.

An API of our own (10 021), versioned as Kafka's are; what it promises is in
``docs/protocol/views.md``.  Asked of the partition's leader, which looks through the log for it.
"""

from waystation.wire.message import Message
from waystation.wire.schema import field, int16, int32, int64, string
from waystation.wire.versions import ApiKey


class CountMatchingRequest(Message, api=ApiKey.COUNT_MATCHING):
    """Count from ``offset`` on, looking at about ``max_bytes`` of the log at most."""

    view: str = field(string)
    partition: int = field(int32)
    offset: int = field(int64)
    max_bytes: int = field(int32, default=32 << 20)


class CountMatchingResponse(Message, api=ApiKey.COUNT_MATCHING):
    """The matches in ``[offset, next_offset)``; all there are, if ``next_offset`` is ``end``."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    matches: int = field(int64)
    next_offset: int = field(int64, default=-1)
    end: int = field(int64, default=-1)
