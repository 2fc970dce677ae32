"""Idempotency keys, in bytes, as ``docs/protocol/idempotency.md`` has them."""

from uuid import UUID

from waystation.messages.once_keys import OnceKeysRequest, OnceKeysResponse
from waystation.messages.produce_once import (
    OncePlace,
    ProduceOnceRequest,
    ProduceOnceResponse,
)
from waystation.wire.message import Message

ONCE: list[tuple[Message, int, str]] = [
    (
        ProduceOnceRequest(topic="t", partition=3, timeout_ms=1_000, records=b"\1\2\3"),
        0,
        "02 74 00000003 000003e8 04 010203 00",
    ),
    (
        ProduceOnceResponse(
            places=[
                OncePlace(fate=0, offset=9, timestamp_ms=1_000),
                OncePlace(fate=1, offset=7, timestamp_ms=999),
            ]
        ),
        0,
        "00000000 0000 00 03 00 0000000000000009 00000000000003e8 00 "
        "01 0000000000000007 00000000000003e7 00 00",
    ),
    (
        OnceKeysRequest(topic_id=UUID(int=7), partition=3, leader_epoch=2, end=-1, page=0),
        0,
        "00000000000000000000000000000007 00000003 00000002 ffffffffffffffff 00000000 00",
    ),
    (
        OnceKeysResponse(end=9, next_page=-1, keys=b""),
        0,
        "00000000 0000 00 0000000000000009 ffffffff 01 00",
    ),
]
