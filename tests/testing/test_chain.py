"""What a chain of stages is judged by: the last topic against the first, by value and order."""

import pytest

from waystation.client.message import Message
from waystation.model.offsets import Millis, Offset
from waystation.testing.chain import differences


def messages(*texts: str, key: bytes = b"k") -> list[Message]:
    return [
        Message(key, text.encode(), "t", 0, Offset(n), Millis(0)) for n, text in enumerate(texts)
    ]


INPUTS = messages("w:0", "w:1", "w:2")
OUTPUTS = messages("s:5 w:0>1>2>3", "s:7 w:1>1>2>3", "s:8 w:2>1>2>3")


def test_each_input_transformed_once_in_order_is_right() -> None:
    assert differences(INPUTS, OUTPUTS) == []


def test_keys_have_no_order_among_each_other() -> None:
    other = messages("w:9", key=b"other")
    made = messages("s:1 w:9>1>2>3", key=b"other")

    assert differences(INPUTS + other, made + OUTPUTS) == []


@pytest.mark.parametrize(
    ("outputs", "told"),
    [
        (OUTPUTS[:2], "w:2>1>2>3 of key b'k' is missing"),
        ([*OUTPUTS, OUTPUTS[0]], "w:0>1>2>3 of key b'k' is there 2 times, 1 were due"),
        (
            [OUTPUTS[1], OUTPUTS[0], OUTPUTS[2]],
            "w:1>1>2>3 of key b'k' comes where w:0>1>2>3 was due",
        ),
        (
            [*OUTPUTS, *messages("s:9 w:3>1>2>3")],
            "w:3>1>2>3 of key b'k' is there 1 times, 0 were due",
        ),
        ([*OUTPUTS[:2], *messages("s:8 w:2>1>3")], "w:2>1>2>3 of key b'k' is missing"),
        ([*OUTPUTS[:2], *messages("s:8 w:2>1>2>3", key=b"x")], "w:2>1>2>3 of key b'k' is missing"),
    ],
    ids=["lost", "repeated", "out of order", "from an abort", "a stage left out", "another key"],
)
def test_what_is_wrong_is_named(outputs: list[Message], told: str) -> None:
    assert told in differences(INPUTS, outputs)
