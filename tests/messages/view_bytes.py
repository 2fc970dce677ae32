"""The messages about views, written out by hand."""

from uuid import UUID

from waystation.messages.count_matching import CountMatchingRequest, CountMatchingResponse
from waystation.messages.describe_views import (
    DescribedView,
    DescribeViewsRequest,
    DescribeViewsResponse,
)
from waystation.wire.message import Message

VIEWS: list[tuple[Message, int, str]] = [
    (DescribeViewsRequest(names=None), 0, "00 00"),
    (DescribeViewsRequest(names=["v", "w"]), 0, "03 02 76 02 77 00"),
    (
        DescribeViewsResponse(
            views=[
                DescribedView(
                    name="v",
                    view_id=UUID("00112233-4455-6677-8899-aabbccddeeff"),
                    topic="t",
                    expression="key = 'a'",
                    partitions=4,
                ),
                DescribedView(error_code=3, error_message="gone", name="w"),
            ]
        ),
        0,
        "00000000 03 0000 00 02 76 00112233445566778899aabbccddeeff 02 74 0a 6b6579203d20276127 "
        "00000004 00 0003 05 676f6e65 02 77 00000000000000000000000000000000 01 01 00000000 00 00",
    ),
    (
        CountMatchingRequest(view="v", partition=3, offset=5, max_bytes=1 << 20),
        0,
        "02 76 00000003 0000000000000005 00100000 00",
    ),
    (
        CountMatchingResponse(matches=7, next_offset=1_000, end=4_711),
        0,
        "00000000 0000 00 0000000000000007 00000000000003e8 0000000000001267 00",
    ),
]
