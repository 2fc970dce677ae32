"""The bytes of the request about queues, as its page prints them."""

from uuid import UUID

from waystation.messages.queue_status import (
    QueueStatusPartition,
    QueueStatusRequest,
    QueueStatusResponse,
)
from waystation.wire.message import Message

QUEUES: list[tuple[Message, int, str]] = [
    (
        QueueStatusRequest(
            group_id="g", topic_id=UUID("00112233445566778899aabbccddeeff"), partitions=[3]
        ),
        0,
        "02 67 00112233445566778899aabbccddeeff 02 00000003 00",
    ),
    (
        QueueStatusResponse(
            partitions=[
                QueueStatusPartition(
                    partition_index=3,
                    in_use=True,
                    start_offset=5,
                    end_offset=15,
                    available=2,
                    waiting=1,
                    in_flight=3,
                    settled=4,
                )
            ]
        ),
        0,
        "00000000 02 00000003 0000 00 01 0000000000000005 000000000000000f 0000000000000002"
        "0000000000000001 0000000000000003 0000000000000000 0000000000000004 00 00",
    ),
]
