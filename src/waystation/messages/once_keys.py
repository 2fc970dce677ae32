"""OnceKeys: the idempotency keys that a partition's leader remembers, page by page.

An API of our own (10 061), versioned as Kafka's are; what it promises is in
``docs/protocol/idempotency.md``.  Asked by a replica that begins where its leader's log begins, and
so never sees the messages that the keys came with.
"""

from uuid import UUID

from waystation.wire.message import Message
from waystation.wire.schema import field, int16, int32, int64, octets, string, uuid
from waystation.wire.versions import ApiKey


class OnceKeysRequest(Message, api=ApiKey.ONCE_KEYS):
    """``end`` and ``page`` as the answer before told them; -1 and 0 for the first page."""

    topic_id: UUID = field(uuid)
    partition: int = field(int32)
    leader_epoch: int = field(int32)
    end: int = field(int64)
    page: int = field(int32)


class OnceKeysResponse(Message, api=ApiKey.ONCE_KEYS):
    """Keys of committed messages before ``end``, 48 bytes each; ``next_page`` is -1 at the last."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    end: int = field(int64)
    next_page: int = field(int32)
    keys: bytes = field(octets)
