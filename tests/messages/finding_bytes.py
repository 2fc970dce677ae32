"""Finding messages by their keys, in bytes, as ``docs/protocol/finding.md`` has them."""

from uuid import UUID

from waystation.messages.find_messages import (
    FindMessagesRequest,
    FindMessagesResponse,
    FoundHeader,
    FoundMessage,
)
from waystation.wire.message import Message

FINDING: list[tuple[Message, int, str]] = [
    (
        FindMessagesRequest(
            topic="t",
            partition=3,
            key=b"ann",
            offset=5,
            limit=10,
            max_bytes=1 << 20,
            max_wait_ms=1_000,
        ),
        0,
        "02 74 00000003 04 616e6e 0000000000000005 0000000a 00100000 000003e8 00",
    ),
    (
        FindMessagesRequest(topic="t", key=b"ann", topic_id=UUID(int=7)),
        0,
        "02 74 00000000 04 616e6e 0000000000000000 00000064 00100000 00000000 "
        "01 00 10 00000000000000000000000000000007",
    ),
    (
        FindMessagesResponse(
            messages=[
                FoundMessage(
                    offset=7,
                    timestamp_ms=1_000,
                    value=b"hi",
                    headers=[FoundHeader(name="h", value=None)],
                )
            ],
            next_offset=9,
            end=9,
        ),
        0,
        "00000000 0000 00 02 0000000000000007 00000000000003e8 03 6869 02 02 68 00 00 00 "
        "0000000000000009 0000000000000009 00",
    ),
]
