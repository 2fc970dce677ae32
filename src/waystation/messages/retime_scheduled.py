"""RetimeScheduled: messages that wait shall be delivered at another time.

An API of our own (10 013), versioned as Kafka's are; what it promises is in
``docs/protocol/schedules.md``.  Asked of the leader of the companion's partition.
"""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, string
from waystation.wire.versions import ApiKey


class RetimeWish(Struct):
    """A message and when it is due instead, in ms since 1970."""

    offset: int = field(int64)
    due_ms: int = field(int64)


class RetimeScheduledRequest(Message, api=ApiKey.RETIME_SCHEDULED):
    """The wish, for any number of messages of one partition; harmless to repeat."""

    topic: str = field(string)
    partition: int = field(int32)
    wishes: list[RetimeWish] = field(array(RetimeWish))


class RetimedMessage(Struct):
    """What became of the wish for one of them: without an error it goes at the new time."""

    offset: int = field(int64)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")


class RetimeScheduledResponse(Message, api=ApiKey.RETIME_SCHEDULED):
    """Answered once no crash can take it back; one that is refused spoils no other."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    results: list[RetimedMessage] = field(array(RetimedMessage))
