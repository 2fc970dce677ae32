"""The bytes of the requests about dead letters, as their page prints them."""

from waystation.messages.cancel_redrive import CancelRedriveRequest, CancelRedriveResponse
from waystation.messages.describe_redrive import (
    DescribeRedriveRequest,
    DescribeRedriveResponse,
    RedrivenSpan,
)
from waystation.messages.redrive_dead_letters import (
    RedriveDeadLettersRequest,
    RedriveDeadLettersResponse,
    RedriveState,
)
from waystation.wire.message import Message

NINE = 1_800_000_000_000
_STATE = RedriveState(
    redrive_id="r",
    state="done",
    first_offset=2,
    end_offset=9,
    cursor=9,
    moved=6,
    refused=1,
    begun_ms=NINE,
    ended_ms=NINE + 1_000,
)
_STATE_BYTES = (
    "02 72 05 646f6e65 0000000000000002 0000000000000009 0000000000000009 0000000000000006 "
    "0000000000000001 0000000000000000 01 000001a3185c5000 000001a3185c53e8 00"
)
_NO_STATE_BYTES = (
    "01 01 0000000000000000 0000000000000000 0000000000000000 0000000000000000 "
    "0000000000000000 0000000000000000 01 ffffffffffffffff ffffffffffffffff 00"
)

DEAD_LETTERS: list[tuple[Message, int, str]] = [
    (
        RedriveDeadLettersRequest(
            redrive_id="r", topic="d", partition=3, first_offset=2, where="key = 'k'", rate=10.0
        ),
        0,
        "02 72 02 64 00000003 0000000000000002 ffffffffffffffff ffffffffffffffff ffffffffffffffff "
        "0a 6b6579203d20276b27 01 4024000000000000 00",
    ),
    (
        RedriveDeadLettersResponse(redrive=_STATE),
        0,
        f"00000000 0000 00 {_STATE_BYTES} 00",
    ),
    (
        RedriveDeadLettersResponse(error_code=42, error_message="busy"),
        0,
        f"00000000 002a 05 62757379 {_NO_STATE_BYTES} 00",
    ),
    (
        DescribeRedriveRequest(topic="d", partition=3),
        0,
        "02 64 00000003 0000000000000000 000003e8 00",
    ),
    (
        DescribeRedriveResponse(
            redrive=_STATE, redriven=[RedrivenSpan(first_offset=2, end_offset=8)]
        ),
        0,
        f"00000000 0000 00 {_STATE_BYTES} 02 0000000000000002 0000000000000008 00 "
        "ffffffffffffffff 00",
    ),
    (
        CancelRedriveRequest(redrive_id="r", topic="d", partition=3),
        0,
        "02 72 02 64 00000003 00",
    ),
    (
        CancelRedriveResponse(redrive=_STATE),
        0,
        f"00000000 0000 00 {_STATE_BYTES} 00",
    ),
]
