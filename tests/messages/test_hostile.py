"""Whatever bytes arrive, the answer is a message or a refusal: soon, and at no expense.

Frames are made from valid ones by accidents (``arbitrary.mutated``) or carry another
message than they should.  Time is the processor's, so that a busy machine fails nothing.
"""

import os
import tracemalloc
from random import Random
from time import thread_time_ns

import pytest
from tests.messages.arbitrary import LENGTHS, frames, instance, mutated

from waystation.messages.catalog import MESSAGES
from waystation.messages.delete_topics import DeleteTopicsRequest
from waystation.messages.fetch import FetchRequest
from waystation.messages.metadata import MetadataRequest
from waystation.model.errors import MalformedFrameError
from waystation.wire.decoding import MOST_ELEMENTS
from waystation.wire.headers import UnknownRequestError, decode_request_header
from waystation.wire.message import Message
from waystation.wire.primitives import encode_uvarint

FRAMES = 2_000_000 if os.environ.get("WAYSTATION_SOAK") else 110_000

ALL = [declared for pair in MESSAGES.values() for declared in pair]
FRAMES_EACH = FRAMES // len(ALL) + 1
SLOWEST_NS = 50_000_000
NEARLY_ALL_NS = 1_000_000

FLOOD = MOST_ELEMENTS + 1

# What an exception, its frames and the few objects before it weigh.
SMALL_BYTES = 8 << 10


def test_there_are_as_many_hostile_frames_as_promised() -> None:
    assert FRAMES_EACH * len(ALL) >= 100_000


@pytest.mark.parametrize("declared", ALL, ids=lambda declared: declared.__name__)
def test_every_mutated_frame_is_read_or_refused_soon(declared: type[Message]) -> None:
    random = Random(declared.__name__)
    taken_ns, refused = [], 0
    for version, frame, other in frames(declared, FRAMES_EACH, random):
        hostile = memoryview(mutated(frame, other, random))
        begun = thread_time_ns()
        try:
            message = declared.decode(hostile, version)
        except MalformedFrameError:
            message = None
            refused += 1
        taken_ns.append(thread_time_ns() - begun)
        if message is not None:
            expect_a_whole_message(message, version)
    taken_ns.sort()

    assert taken_ns[-1] < SLOWEST_NS
    assert taken_ns[len(taken_ns) * 99 // 100] < NEARLY_ALL_NS
    assert 0 < refused < FRAMES_EACH, "the frames are too tame or too wild to tell anything"


def expect_a_whole_message(message: Message, version: int) -> None:
    """What was read can be written, and says the same again."""
    encoded = message.encode(version)
    again = type(message).decode(memoryview(encoded), version)

    assert again.encode(version) == encoded


def test_a_message_of_another_kind_is_read_or_refused() -> None:
    random = Random("confused")
    for sent in ALL:
        for version in range(sent.spoken.versions.low, sent.spoken.versions.high + 1):
            view = memoryview(instance(sent, version, random).encode(version))
            for expected in ALL:
                for other_version in {*expected.spoken.versions, version}:
                    if expected.spoken.versions.include(other_version):
                        read_or_refuse(expected, view, other_version)


def read_or_refuse(declared: type[Message], view: memoryview, version: int) -> None:
    try:
        declared.decode(view, version)
    except MalformedFrameError as refusal:
        if not str(refusal).startswith(declared.__name__):
            raise


@pytest.mark.parametrize("declared", ALL, ids=lambda declared: declared.__name__)
def test_a_length_that_lies_costs_no_memory(declared: type[Message]) -> None:
    """A wrong length at every place of a frame: no more is allocated than for the right one."""
    random = Random(declared.__name__)
    for version in declared.spoken.versions:
        frame = instance(declared, version, random).encode(version)
        honest = peak_bytes(declared, frame, version)
        for at in range(0, len(frame), 1 + len(frame) // 40):
            length = random.choice(LENGTHS)
            lying = frame[:at] + length + frame[at + len(length) :]

            most = honest + len(frame) + SMALL_BYTES
            # Again, because other threads of this process are counted too.
            assert any(peak_bytes(declared, lying, version) < most for _ in range(3))


def peak_bytes(declared: type[Message], frame: bytes, version: int) -> int:
    view = memoryview(frame)
    tracemalloc.start()
    try:
        declared.decode(view, version)
    except MalformedFrameError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize(
    ("declared", "version", "start", "element"),
    [
        (DeleteTopicsRequest, 5, encode_uvarint(FLOOD + 1), b"\1"),
        (MetadataRequest, 0, FLOOD.to_bytes(4, "big"), b"\0\0"),
        (MetadataRequest, 9, b"\1\0\0\0" + encode_uvarint(FLOOD), b"\7\0"),
        (FetchRequest, 4, bytes(20) + b"\1\0\0" + FLOOD.to_bytes(4, "big"), bytes(16)),
    ],
    ids=["empty strings", "empty structs", "tagged fields", "nested structs"],
)
def test_an_honest_flood_of_elements_is_refused_at_once(
    declared: type[Message], version: int, start: bytes, element: bytes
) -> None:
    frame = start + element * FLOOD
    view = memoryview(frame)
    begun = thread_time_ns()
    with pytest.raises(MalformedFrameError, match=f"more than {MOST_ELEMENTS} elements"):
        declared.decode(view, version)

    assert thread_time_ns() - begun < SLOWEST_NS


def test_every_mutated_header_is_read_or_refused() -> None:
    random = Random("headers")
    header = b"\0\3\0\x0c\0\0\0\5\0\6client\1\2\3abc" + bytes(20)
    for _ in range(FRAMES_EACH):
        hostile = memoryview(mutated(header, header[::-1], random))
        try:
            found = decode_request_header(hostile)
        except UnknownRequestError as unknown:
            found = unknown.header
        except MalformedFrameError:
            continue

        assert 0 < found.body_at <= len(hostile)
