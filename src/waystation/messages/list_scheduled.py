"""ListScheduled: what waits in one partition of a companion topic, by the time it is due.

An API of our own (10 010), versioned as Kafka's are; what it promises is in
``docs/protocol/schedules.md``.  Asked of the leader of the companion's partition.
"""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int16, int32, int64, octets, string
from waystation.wire.versions import ApiKey

NO_TIME = -1
"""No end of the range; no next page; a time that was not asked for."""


class ListScheduledRequest(Message, api=ApiKey.LIST_SCHEDULED):
    """A page: about ``limit`` messages due in ``[from_ms, until_ms)``, the earliest first.

    ``from_offset`` is where a page goes on within ``from_ms``.  ``key`` leaves away all others, so
    that a page may be empty although there is a next one.
    """

    topic: str = field(string)
    partition: int = field(int32)
    from_ms: int = field(int64)
    from_offset: int = field(int64)
    until_ms: int = field(int64, default=NO_TIME)
    limit: int = field(int32, default=100)
    key: bytes | None = field(octets, nullable="0+")
    details: bool = field(boolean)


class ListedMessage(Struct):
    """One that waits; what is in it, only if ``details`` were asked for."""

    offset: int = field(int64)
    due_ms: int = field(int64)
    cron: str | None = field(string, nullable="0+")
    zone: str | None = field(string, nullable="0+")
    sent_ms: int = field(int64, default=NO_TIME)
    key: bytes | None = field(octets, nullable="0+")
    value_bytes: int = field(int32, default=-1)


class ListScheduledResponse(Message, api=ApiKey.LIST_SCHEDULED):
    """The page, where the next one begins, and how many messages wait in the partition."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    waiting: int = field(int64)
    messages: list[ListedMessage] = field(array(ListedMessage))
    next_ms: int = field(int64, default=NO_TIME)
    next_offset: int = field(int64, default=NO_TIME)
