"""DescribeScheduled: one message that waits, with all that is in it.

An API of our own (10 011), versioned as Kafka's are; what it promises is in
``docs/protocol/schedules.md``.  Asked of the leader of the companion's partition.
"""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, octets, string
from waystation.wire.versions import ApiKey


class DescribeScheduledRequest(Message, api=ApiKey.DESCRIBE_SCHEDULED):
    """Asks about a message by its id: its partition and its offset in the companion topic."""

    topic: str = field(string)
    partition: int = field(int32)
    offset: int = field(int64)


class ScheduledHeader(Struct):
    """A header as it was sent, those about the time among them."""

    name: str = field(string)
    value: bytes | None = field(octets, nullable="0+")


class DescribeScheduledResponse(Message, api=ApiKey.DESCRIBE_SCHEDULED):
    """When it is due next, and what it is.  ``sent_ms`` is when the broker took it."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    due_ms: int = field(int64)
    cron: str | None = field(string, nullable="0+")
    zone: str | None = field(string, nullable="0+")
    sent_ms: int = field(int64)
    key: bytes | None = field(octets, nullable="0+")
    value: bytes | None = field(octets, nullable="0+")
    headers: list[ScheduledHeader] = field(array(ScheduledHeader))
