"""The bytes of the requests about scheduled messages, as their page prints them."""

from waystation.messages.cancel_scheduled import (
    CancelledMessage,
    CancelScheduledRequest,
    CancelScheduledResponse,
)
from waystation.messages.describe_scheduled import (
    DescribeScheduledRequest,
    DescribeScheduledResponse,
    ScheduledHeader,
)
from waystation.messages.list_scheduled import (
    ListedMessage,
    ListScheduledRequest,
    ListScheduledResponse,
)
from waystation.messages.retime_scheduled import (
    RetimedMessage,
    RetimeScheduledRequest,
    RetimeScheduledResponse,
    RetimeWish,
)
from waystation.wire.message import Message

NINE = 1_800_000_000_000

SCHEDULED: list[tuple[Message, int, str]] = [
    (
        ListScheduledRequest(topic="t", partition=3, from_ms=NINE, limit=2),
        0,
        "02 74 00000003 000001a3185c5000 0000000000000000 ffffffffffffffff 00000002 00 00 00",
    ),
    (
        ListScheduledResponse(
            waiting=7,
            messages=[
                ListedMessage(offset=9, due_ms=NINE),
                ListedMessage(
                    offset=4,
                    due_ms=NINE + 60_000,
                    cron="0 3 * * *",
                    zone="UTC",
                    sent_ms=NINE - 1_000,
                    key=b"k",
                    value_bytes=5,
                ),
            ],
            next_ms=NINE + 120_000,
            next_offset=1,
        ),
        0,
        "00000000 0000 00 0000000000000007"
        "03 0000000000000009 000001a3185c5000 00 00 ffffffffffffffff 00 ffffffff 00"
        "0000000000000004 000001a3185d3a60 0a 302033202a202a202a 04 555443 000001a3185c4c18 02 6b"
        "00000005 00"
        "000001a3185e24c0 0000000000000001 00",
    ),
    (
        DescribeScheduledRequest(topic="t", partition=3, offset=9),
        0,
        "02 74 00000003 0000000000000009 00",
    ),
    (
        DescribeScheduledResponse(
            due_ms=NINE,
            sent_ms=NINE - 1_000,
            key=b"k",
            value=b"v",
            headers=[ScheduledHeader(name="deliver-after", value=b"1s")],
        ),
        0,
        "00000000 0000 00 000001a3185c5000 00 00 000001a3185c4c18 02 6b 02 76"
        "02 0e 64656c697665722d6166746572 03 3173 00 00",
    ),
    (
        DescribeScheduledResponse(error_code=91, error_message="gone"),
        0,
        "00000000 005b 05 676f6e65 0000000000000000 00 00 0000000000000000 00 00 01 00",
    ),
    (
        CancelScheduledRequest(topic="t", partition=3, offsets=[9, 10]),
        0,
        "02 74 00000003 03 0000000000000009 000000000000000a 00",
    ),
    (
        CancelScheduledResponse(
            results=[
                CancelledMessage(offset=9),
                CancelledMessage(offset=10, error_code=91, error_message="gone"),
            ]
        ),
        0,
        "00000000 0000 00 03 0000000000000009 0000 00 00000000000000000a 005b 05 676f6e65 00 00",
    ),
    (
        RetimeScheduledRequest(
            topic="t", partition=3, wishes=[RetimeWish(offset=9, due_ms=NINE + 60_000)]
        ),
        0,
        "02 74 00000003 02 0000000000000009 000001a3185d3a60 00 00",
    ),
    (
        RetimeScheduledResponse(results=[RetimedMessage(offset=9)]),
        0,
        "00000000 0000 00 02 0000000000000009 0000 00 00 00",
    ),
]
