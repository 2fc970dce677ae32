"""FindMessages: the messages of one key in a partition, by its index of keys.

An API of our own (10 050), versioned as Kafka's are; what it promises is in
``docs/protocol/finding.md``.  Asked of the partition's leader.
"""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, octets, string, tagged, uuid
from waystation.wire.versions import ApiKey


class FindMessagesRequest(Message, api=ApiKey.FIND_MESSAGES):
    """Up to ``limit`` messages of ``key`` from ``offset`` on, the oldest first.

    Waits for up to ``max_wait_ms`` while there is none.
    """

    topic: str = field(string)
    partition: int = field(int32)
    key: bytes = field(octets)
    offset: int = field(int64)
    limit: int = field(int32, default=100)
    max_bytes: int = field(int32, default=1 << 20)
    max_wait_ms: int = field(int32)
    topic_id: UUID = tagged(0, uuid, "0+")
    """If given, the topic must be this one, whatever it is called."""


class FoundHeader(Struct):
    """A header as it was sent."""

    name: str = field(string)
    value: bytes | None = field(octets, nullable="0+")


class FoundMessage(Struct):
    """One message; its key is the one that was asked for."""

    offset: int = field(int64)
    timestamp_ms: int = field(int64)
    value: bytes | None = field(octets, nullable="0+")
    headers: list[FoundHeader] = field(array(FoundHeader))


class FindMessagesResponse(Message, api=ApiKey.FIND_MESSAGES):
    """All there are in ``[offset, next_offset)``; all there are, if ``next_offset`` is ``end``."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    messages: list[FoundMessage] = field(array(FoundMessage))
    next_offset: int = field(int64, default=-1)
    end: int = field(int64, default=-1)
