"""Sequences: what is new, what is repeated, what is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.building import NOW, batch_of
from waystation.model.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from waystation.model.offsets import NO_TIMESTAMP, Millis, Offset
from waystation.records.header import BatchHeader, peek
from waystation.storage.producer_state import ProducerStates
from waystation.storage.snapshots import decode_snapshot, encode_snapshot

INT32_MAX = (1 << 31) - 1
DAY_MS = 86_400_000


def header(producer: int, sequence: int, count: int = 1, epoch: int = 0) -> BatchHeader:
    batch = batch_of(*[b"x"] * count, producer=producer, sequence=sequence, producer_epoch=epoch)
    return peek(batch)


def noted(*headers: BatchHeader, now: Millis = NOW) -> ProducerStates:
    states, offset = ProducerStates(), 0
    for one in headers:
        states.note(one, Offset(offset), now)
        offset += one.last_offset_delta + 1
    return states


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerStates().check(header(1, 77)) is None


def test_the_next_sequence_is_let_in_and_others_are_not() -> None:
    states = noted(header(1, 0, count=3))

    assert states.check(header(1, 3)) is None
    for wrong in (1, 4, 100):
        with pytest.raises(OutOfOrderSequenceError):
            states.check(header(1, wrong))


def test_the_last_five_batches_are_recognised() -> None:
    states = noted(*[header(1, 2 * number, count=2) for number in range(6)])

    for number in range(1, 6):
        known = states.check(header(1, 2 * number, count=2))
        assert known is not None
        assert (known.base_offset, known.last_offset) == (2 * number, 2 * number + 1)
    with pytest.raises(OutOfOrderSequenceError):
        states.check(header(1, 0, count=2))


def test_a_batch_of_another_length_is_no_repetition() -> None:
    states = noted(header(1, 0, count=2))

    with pytest.raises(OutOfOrderSequenceError):
        states.check(header(1, 0, count=3))


def test_sequences_wrap_at_the_largest_int32() -> None:
    states = noted(header(1, INT32_MAX - 1, count=4))

    assert states.active()[0].last_sequence == 1
    assert states.check(header(1, 2)) is None
    assert states.check(header(1, INT32_MAX - 1, count=4)) is not None
    at_the_edge = noted(header(1, INT32_MAX))
    assert at_the_edge.check(header(1, 0)) is None


def test_a_newer_epoch_begins_at_zero_and_fences_the_older() -> None:
    states = noted(header(1, 0), header(1, 0, epoch=2))

    with pytest.raises(InvalidProducerEpochError):
        states.check(header(1, 1, epoch=1))
    with pytest.raises(OutOfOrderSequenceError):
        states.check(header(1, 5, epoch=3))
    assert states.check(header(1, 0, epoch=3)) is None
    assert states.check(header(1, 1, epoch=2)) is None


def test_quiet_producers_are_forgotten() -> None:
    states = noted(header(1, 0), now=Millis(0))
    states.note(header(2, 0), Offset(1), Millis(DAY_MS))

    assert states.expire(Millis(DAY_MS + 1), DAY_MS) == 1
    assert [one.producer_id for one in states.active()] == [2]


def test_a_producer_read_back_from_the_log_gets_its_full_time() -> None:
    states = noted(header(1, 0), now=NO_TIMESTAMP)

    assert states.expire(Millis(10 * DAY_MS), DAY_MS) == 0
    assert states.expire(Millis(11 * DAY_MS), DAY_MS) == 0
    assert states.expire(Millis(11 * DAY_MS + 1), DAY_MS) == 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=40))
def test_a_snapshot_knows_what_the_state_knew(appends: list[tuple[int, int]]) -> None:
    headers, next_sequence = [], dict.fromkeys(range(4), INT32_MAX - 5)
    for producer, count in appends:
        headers.append(header(producer, next_sequence[producer], count))
        next_sequence[producer] = (next_sequence[producer] + count) % (INT32_MAX + 1)
    states = noted(*headers)

    restored = ProducerStates(decode_snapshot(encode_snapshot(states.active())))

    before = {one.producer_id: (one.epoch, one.batches) for one in states.active()}
    assert {one.producer_id: (one.epoch, one.batches) for one in restored.active()} == before


def test_a_snapshot_has_kafkas_layout() -> None:
    content = encode_snapshot(noted(header(9, 4, count=3, epoch=2)).active())

    assert content[:2] == b"\0\1"
    assert int.from_bytes(content[6:10], "big") == 1
    entry = content[10:]
    assert len(entry) == 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
    assert entry[:14] == (9).to_bytes(8, "big") + b"\0\2" + (6).to_bytes(4, "big")


@pytest.mark.parametrize("damage", [b"", b"\0", b"\0\1", b"\0\2" + bytes(8), b"\0\1" + bytes(8)])
def test_a_damaged_snapshot_is_refused(damage: bytes) -> None:
    with pytest.raises(ValueError, match=r"snapshot|checksum|entries"):
        decode_snapshot(damage)


@given(st.data())
def test_any_flipped_byte_of_a_snapshot_is_noticed(data: st.DataObject) -> None:
    content = bytearray(encode_snapshot(noted(header(9, 0), header(8, 3)).active()))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))

    with pytest.raises(ValueError, match=r"snapshot|checksum|entries"):
        decode_snapshot(bytes(content))
