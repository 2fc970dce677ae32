"""CancelScheduled: messages that wait shall never be delivered.

An API of our own (10 012), versioned as Kafka's are; what it promises is in
``docs/protocol/schedules.md``.  Asked of the leader of the companion's partition.
"""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, string
from waystation.wire.versions import ApiKey


class CancelScheduledRequest(Message, api=ApiKey.CANCEL_SCHEDULED):
    """The wish, for any number of messages of one partition."""

    topic: str = field(string)
    partition: int = field(int32)
    offsets: list[int] = field(array(int64))


class CancelledMessage(Struct):
    """What became of the wish for one of them: without an error it is never delivered."""

    offset: int = field(int64)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")


class CancelScheduledResponse(Message, api=ApiKey.CANCEL_SCHEDULED):
    """Answered once no crash can take it back; one that is refused spoils no other."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    results: list[CancelledMessage] = field(array(CancelledMessage))
