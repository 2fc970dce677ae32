"""What is written by hand is what the declaration writes, and whatever is read means the same."""

from typing import cast
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.soak import count
from waystation.broker import replica_wire
from waystation.broker.replica_wire import (
    BY_HAND,
    Answers,
    Asked,
    Heard,
    Questions,
    Told,
    questions_of,
    read_answers,
    read_questions,
)
from waystation.messages.fetch import FetchRequest, FetchResponse
from waystation.model.error_codes import ErrorCode
from waystation.model.errors import MalformedFrameError, NotLeaderError, OffsetOutOfRangeError
from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId, TopicId, TopicPartition
from waystation.model.offsets import Offset
from waystation.replication.epochs import EpochEnd
from waystation.runtime.regions import FileRegion

TOPICS = [TopicId(UUID(int=number)) for number in (1, 1 << 127, 0x0101_0D00)]
EXAMPLES = settings(max_examples=count(60, 3_000), deadline=None)

int32 = st.integers(0, (1 << 31) - 1)
int64 = st.integers(0, (1 << 63) - 1)
offsets = int64.map(Offset)
epochs = st.integers(-1, (1 << 31) - 1).map(LeaderEpoch)
keys = st.tuples(st.sampled_from(TOPICS), int32)
asked = st.builds(Asked, keys, epochs, offsets, epochs, offsets, int32, offsets)
questions = st.builds(
    Questions, int32, int64, int64, int32, int32, int32, int32, st.lists(asked, max_size=5)
)


class Memory:
    """A file of one stretch of bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def fileno(self) -> None:
        return None

    def pread(self, nbytes: int, position: int) -> bytes:
        return self.data[position : position + nbytes]


def region(data: bytes) -> FileRegion:
    return FileRegion(Memory(data), 0, len(data))


regions = st.none() | st.integers(1, 40_000).map(lambda size: region(b"r" * size))
told = st.builds(Told, keys, st.none(), regions, offsets, offsets, st.none())
answers = st.builds(Answers, int32, st.lists(told, max_size=5))


def fields(found: Questions | None) -> list[object] | None:
    names = [name for name in Questions.__slots__ if name != "forgotten"]
    return None if found is None else [getattr(found, name) for name in names]


def sent(questions: Questions, version: int = BY_HAND) -> bytes:
    return b"".join(cast("list[bytes]", questions.encode_parts(version)))


def joined(parts: list[object]) -> bytes:
    return b"".join(
        part.read() if isinstance(part, FileRegion) else cast(bytes, part) for part in parts
    )


def declared(view: memoryview) -> Questions:
    request = FetchRequest.decode(view, BY_HAND)
    state = request.replica_state
    assert state is not None
    return questions_of(request, NodeId(state.replica_id), BrokerEpoch(state.replica_epoch))


def by_hand(heard: Heard) -> tuple[object, ...]:
    return (
        heard.error,
        heard.session_id,
        [(key, *answer[:4], bytes(answer.data)) for key, answer in heard.answers],
    )


@EXAMPLES
@given(questions)
def test_questions_are_written_as_declared_and_read_back(questions: Questions) -> None:
    questions.asked = sorted(questions.asked, key=lambda one: TOPICS.index(one.key[0]))
    written = sent(questions)
    found = read_questions(memoryview(written), BY_HAND)

    assert written == questions.declared().encode(BY_HAND)
    assert found is not None
    assert (fields(found), list(found.forgotten)) == (fields(questions), [])


@EXAMPLES
@given(questions, st.data())
def test_whatever_is_read_by_hand_means_what_is_declared(
    questions: Questions, data: st.DataObject
) -> None:
    """One byte is another one, or the end is cut off: it is read alike, or not by hand."""
    written = bytearray(sent(questions))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(written) - 1))
        written[at] = data.draw(st.integers(0, 255))
    else:
        del written[data.draw(st.integers(0, len(written))) :]
    view = memoryview(bytes(written))
    found = read_questions(view, BY_HAND)

    if found is not None:
        assert fields(found) == fields(declared(view))


@EXAMPLES
@given(answers)
def test_answers_are_written_as_declared_and_read_back(answers: Answers) -> None:
    answers.told = sorted(answers.told, key=lambda one: TOPICS.index(one.key[0]))
    written = joined(list(answers.encode_parts(BY_HAND)))
    heard = read_answers(memoryview(written), BY_HAND)
    expected = [
        (one.key, ErrorCode.NONE, one.high_watermark, one.log_start, None, _data(one))
        for one in answers.told
    ]

    assert written == joined(answers.declared().encode_parts(BY_HAND))
    assert by_hand(heard) == (ErrorCode.NONE, answers.session_id, expected)


@EXAMPLES
@given(answers, st.data())
def test_answers_that_are_read_by_hand_mean_what_is_declared(
    answers: Answers, data: st.DataObject
) -> None:
    written = bytearray(joined(list(answers.encode_parts(BY_HAND))))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, min(len(written) - 1, 200)))
        written[at] = data.draw(st.integers(0, 255))
    else:
        del written[data.draw(st.integers(0, len(written))) :]
    view = memoryview(bytes(written))
    found = replica_wire._read_told(view)

    if found is not None:
        assert by_hand(found) == by_hand(replica_wire._heard(FetchResponse.decode(view, BY_HAND)))


def _data(one: Told) -> bytes:
    return b"" if one.region is None else one.region.read()


REFUSALS = [
    Told((TOPICS[0], 1), NotLeaderError(TopicPartition("t", 1), NodeId(2), LeaderEpoch(3))),
    Told(
        (TOPICS[0], 1), OffsetOutOfRangeError(Offset(1), Offset(2), Offset(3)), log_start=Offset(2)
    ),
    Told((TOPICS[0], 1), diverging=EpochEnd(LeaderEpoch(2), Offset(7))),
]


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("version", [13, BY_HAND])
def test_what_is_unusual_is_said_as_declared(refusal: Told, version: int) -> None:
    usual = Told((TOPICS[1], 4), None, region(b"data"), Offset(5), Offset(1))
    written = joined(list(Answers(9, [usual, refusal]).encode_parts(version)))
    heard = read_answers(memoryview(written), version)

    (_, first), (key, second) = heard.answers
    assert bytes(first.data) == b"data"
    assert (key, second.diverging) == (refusal.key, refusal.diverging)
    assert second.error == (ErrorCode.NONE if refusal.error is None else refusal.error.code)


@pytest.mark.parametrize("version", [15, BY_HAND])
def test_what_is_forgotten_or_not_flushed_is_asked_as_declared(version: int) -> None:
    one = Asked((TOPICS[0], 1), 2, Offset(3), LeaderEpoch(2), Offset(-1), 10, Offset(0))
    forgotten = [(TOPICS[1], 3), (TOPICS[0], 4), (TOPICS[1], 5)]
    said = Questions(NodeId(1), BrokerEpoch(2), 3, 4, 5, 500, 1 << 20, [one], forgotten)
    view = memoryview(sent(said, version))

    assert read_questions(view, version) is None
    request = FetchRequest.decode(view, version)
    found = questions_of(request, NodeId(1), BrokerEpoch(2))
    assert (found.asked, sorted(found.forgotten)) == ([one], sorted(forgotten))


def test_a_consumers_fetch_is_not_taken_for_a_followers() -> None:
    fetch = FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=1, rack_id="\x01\x01\x02\x01\x0d")

    assert read_questions(memoryview(fetch.encode(BY_HAND)), BY_HAND) is None


def test_an_answer_that_is_none_is_refused() -> None:
    with pytest.raises(MalformedFrameError):
        read_answers(memoryview(b"\0" * 11), BY_HAND)
