"""ProduceOnce: messages with idempotency keys, each stored at most once.

An API of our own (10 060), versioned as Kafka's are; what it promises is in
``docs/protocol/idempotency.md``.  Asked of the partition's leader.
"""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int8, int16, int32, int64, octets, string
from waystation.wire.versions import ApiKey


class ProduceOnceRequest(Message, api=ApiKey.PRODUCE_ONCE):
    """One batch, every record of which has the header ``idempotency-key``."""

    topic: str = field(string)
    partition: int = field(int32)
    timeout_ms: int = field(int32)
    records: bytes = field(octets)


class OncePlace(Struct):
    """What became of one record, in the order of the request.

    ``fate`` is 0 if it was stored now, 1 if it was before, 2 if something else was stored under
    its key.  The rest says where and when that is.
    """

    fate: int = field(int8)
    offset: int = field(int64)
    timestamp_ms: int = field(int64)


class ProduceOnceResponse(Message, api=ApiKey.PRODUCE_ONCE):
    """All of the records are committed, or there is an error and nobody knows of any of them."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    places: list[OncePlace] = field(array(OncePlace))
