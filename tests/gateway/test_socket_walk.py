"""Where frames end, against the library that takes them apart."""

import random

import pytest
from websockets.frames import Frame, Opcode

from waystation.gateway.sockets_walk import FrameWalk, lone_text

SIZES = (0, 1, 6, 125, 126, 127, 65_535, 65_536, 70_000)


def frame(opcode: Opcode, size: int, *, is_last: bool = True) -> bytes:
    return Frame(opcode, b"x" * size, fin=is_last).serialize(mask=True)


def message(rng: random.Random) -> bytes:
    """A message of some parts, control frames between them."""
    parts = rng.randint(1, 4)
    kinds = [rng.choice((Opcode.TEXT, Opcode.BINARY))] + [Opcode.CONT] * (parts - 1)
    content = b""
    for number, kind in enumerate(kinds):
        if rng.random() < 0.3:
            content += frame(Opcode.PING, rng.randint(0, 125))
        content += frame(kind, rng.choice(SIZES), is_last=number == parts - 1)
    return content


@pytest.mark.parametrize("seed", range(20))
def test_it_is_between_messages_exactly_where_one_has_ended(seed: int) -> None:
    rng = random.Random(seed)
    messages = [message(rng) for _ in range(10)]
    ends, at = set[int](), 0
    for one in messages:
        at += len(one)
        ends.add(at)
    content, walk, at = b"".join(messages), FrameWalk(), 0
    assert walk.is_between
    while at < len(content):
        # Small steps see the inside of headers, large ones pass whole frames.
        step = min(rng.choice((1, 2, 3, 7, 100, 5_000, 100_000)), len(content) - at)
        next_end = min(end for end in ends if end > at)
        step = min(step, next_end - at)
        walk.walk(content[at : at + step])
        at += step
        if at in ends:
            assert walk.is_between
        elif walk.is_between:
            # Only control frames may lie behind the last message.
            last = max((end for end in ends if end < at), default=0)
            assert content[last] & 0x08


def test_only_a_short_text_by_itself_is_one() -> None:
    assert lone_text(frame(Opcode.TEXT, 125)) == b"x" * 125
    assert lone_text(frame(Opcode.TEXT, 0)) == b""
    for other in (
        frame(Opcode.TEXT, 126),
        frame(Opcode.TEXT, 5, is_last=False),
        frame(Opcode.BINARY, 5),
        frame(Opcode.PING, 5),
        frame(Opcode.TEXT, 5) * 2,
        frame(Opcode.TEXT, 5)[:-1],
        frame(Opcode.TEXT, 5)[:3],
        Frame(Opcode.TEXT, b"not masked").serialize(mask=False),
        b"",
    ):
        assert lone_text(other) is None
