"""Sequences: what is new, what is repeated, what is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.building import NOW, batch_of
from waystation.model.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.offsets import NO_TIMESTAMP, Millis, Offset
from waystation.records.control import Marker
from waystation.records.header import BatchHeader, peek
from waystation.storage.producer_state import ProducerStates
from waystation.storage.snapshots import decode_snapshot, encode_snapshot
from waystation.storage.unstable import EndedTransaction

INT32_MAX = (1 << 31) - 1
DAY_MS = 86_400_000


def header(
    producer: int, sequence: int, count: int = 1, epoch: int = 0, *, transactional: bool = False
) -> BatchHeader:
    batch = batch_of(
        *[b"x"] * count,
        producer=producer,
        sequence=sequence,
        producer_epoch=epoch,
        transactional=transactional,
    )
    return peek(batch)


def in_transaction(producer: int, sequence: int, epoch: int = 0) -> BatchHeader:
    return header(producer, sequence, epoch=epoch, transactional=True)


def marker(
    producer: int,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    *,
    commit: bool = True,
    bumped: bool = False,
) -> Marker:
    return Marker(ProducerId(producer), ProducerEpoch(epoch), coordinator_epoch, commit, bumped)


def ended(states: ProducerStates, one: Marker, offset: int) -> EndedTransaction | None:
    return states.end(one, Offset(offset), NOW, NOW)


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


# --- transactions ---------------------------------------------------------------------------


def test_the_first_transactional_batch_opens_a_transaction_and_a_marker_ends_it() -> None:
    states = noted(header(2, 0), in_transaction(1, 0), in_transaction(1, 1))

    assert states.in_transaction(ProducerId(1), ProducerEpoch(0))
    assert not states.in_transaction(ProducerId(1), ProducerEpoch(1))
    assert not states.in_transaction(ProducerId(2), ProducerEpoch(0))
    assert states.unstable.first(Offset(9)) == 1

    assert ended(states, marker(1), 3) == EndedTransaction(
        ProducerId(1), Offset(1), Offset(3), Offset(4)
    )
    assert states.open_transactions() == []


def test_a_batch_without_a_sequence_opens_one_too_and_is_never_a_repetition() -> None:
    states = noted(in_transaction(1, -1), in_transaction(1, -1))

    assert states.in_transaction(ProducerId(1), ProducerEpoch(0))
    assert states.check(in_transaction(1, -1)) is None
    assert states.active()[0].last_sequence == -1


def test_a_transaction_is_unstable_until_its_marker_is_committed() -> None:
    states = noted(in_transaction(1, 0), in_transaction(2, 0))
    ended(states, marker(1), 2)

    assert states.unstable.first(Offset(2)) == 0
    assert states.unstable.first(Offset(3)) == 1

    ended(states, marker(2), 3)

    assert states.unstable.first(Offset(3)) == 1
    assert states.unstable.first(Offset(4)) is None
    assert not states.unstable.are_there


def test_what_ended_says_up_to_where_everything_is_decided() -> None:
    states = noted(in_transaction(1, 0), in_transaction(2, 0), in_transaction(3, 0))

    second = ended(states, marker(2, commit=False), 3)
    first = ended(states, marker(1, commit=False), 4)
    third = ended(states, marker(3, commit=False), 5)

    assert [one and one.last_stable for one in (second, first, third)] == [0, 2, 6]


def test_plain_and_transactional_batches_are_not_mixed() -> None:
    states = noted(in_transaction(1, 0))

    with pytest.raises(InvalidTxnStateError, match="open since offset 0"):
        states.check(header(1, 1))
    ended(states, marker(1), 1)
    assert states.check(header(1, 1)) is None


def test_a_transaction_begins_only_where_it_may() -> None:
    states = noted(header(2, 0), in_transaction(1, 0))

    assert states.check(in_transaction(1, 1), may_begin=False) is None
    for begins in (in_transaction(2, 1), in_transaction(3, 0), in_transaction(1, 0, epoch=1)):
        with pytest.raises(InvalidTxnStateError, match="no transaction here"):
            states.check(begins, may_begin=False)
    assert states.check(header(2, 1), may_begin=False) is None


def test_a_repeated_batch_of_an_ended_transaction_is_recognised_and_begins_none() -> None:
    states = noted(in_transaction(1, 0))
    ended(states, marker(1), 1)

    known = states.check(in_transaction(1, 0), may_begin=False)

    assert known is not None
    assert known.base_offset == 0
    assert states.open_transactions() == []


def test_a_marker_brings_its_epochs_and_fences_older_ones() -> None:
    states = noted(in_transaction(1, 0))
    ended(states, marker(1, epoch=1, coordinator_epoch=4), 1)

    with pytest.raises(InvalidProducerEpochError):
        states.check(in_transaction(1, 1))
    with pytest.raises(InvalidProducerEpochError):
        states.check_marker(marker(1, epoch=0, coordinator_epoch=4))
    with pytest.raises(TransactionCoordinatorFencedError):
        states.check_marker(marker(1, epoch=1, coordinator_epoch=3))
    states.check_marker(marker(1, epoch=1, coordinator_epoch=4))
    assert states.check(in_transaction(1, 0, epoch=1)) is None
    with pytest.raises(OutOfOrderSequenceError):
        states.check(in_transaction(1, 1, epoch=1))


def test_a_late_marker_does_not_end_the_next_transaction() -> None:
    states = noted(in_transaction(1, 0))
    late = marker(1, epoch=1, bumped=True)
    states.check_marker(late)
    ended(states, late, 1)

    states.check_marker(late)  # asked again, since the answer was lost
    states.note(in_transaction(1, 0, epoch=1), Offset(2), NOW)
    with pytest.raises(InvalidProducerEpochError):
        states.check_marker(late)
    states.check_marker(marker(1, epoch=2, bumped=True))


def test_a_classic_transaction_ends_under_its_own_epoch() -> None:
    states = noted(in_transaction(1, 0))

    states.check_marker(marker(1))


def test_a_marker_that_ends_nothing_fences_all_the_same() -> None:
    states = ProducerStates()

    assert ended(states, marker(1, epoch=5), 0) is None
    assert not states.unstable.are_there
    with pytest.raises(InvalidProducerEpochError):
        states.check(header(1, 0, epoch=4))


def test_a_newer_epoch_goes_on_with_the_transaction_of_the_older() -> None:
    states = noted(in_transaction(1, 0), in_transaction(1, 0, epoch=1))

    (one,) = states.open_transactions()

    assert (one.first_offset, one.producer_epoch) == (0, 1)


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    states = noted(in_transaction(1, 0), now=Millis(0))

    assert states.expire(Millis(9 * DAY_MS), DAY_MS) == 0
    ended(states, marker(1), 1)
    assert states.expire(Millis(NOW + 9 * DAY_MS), DAY_MS) == 1


def test_a_transaction_read_back_from_the_log_counts_from_the_first_look() -> None:
    states = noted(in_transaction(1, 0), now=NO_TIMESTAMP)

    assert states.open_transactions()[0].began_at == NOW
    states.expire(Millis(NOW + 5), DAY_MS)
    assert states.open_transactions()[0].began_at == NOW + 5


steps = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(("plain", "write", "offsets", "commit", "abort"))),
    max_size=40,
)


@given(steps)
def test_a_snapshot_knows_transactions_and_epochs(steps: list[tuple[int, str]]) -> None:
    states, epochs, sequences = ProducerStates(), dict.fromkeys(range(4), 0), [0] * 4
    for offset, (producer, what) in enumerate(steps):
        epoch = epochs[producer]
        is_open = states.in_transaction(ProducerId(producer), ProducerEpoch(epoch))
        if what in ("commit", "abort"):
            epochs[producer], sequences[producer] = epoch + 1, 0
            ended(states, marker(producer, epoch + 1, offset, commit=what == "commit"), offset)
        elif what != "plain" or not is_open:
            sequence = -1 if what == "offsets" else sequences[producer]
            sequences[producer] += sequence >= 0
            one = header(producer, sequence, epoch=epoch, transactional=what != "plain")
            assert states.check(one) is None
            states.note(one, Offset(offset), NOW)

    restored = ProducerStates(decode_snapshot(encode_snapshot(states.active())))

    assert known(restored) == known(states)
    end = Offset(len(steps))
    assert restored.unstable.first(end) == states.unstable.first(end)


def known(states: ProducerStates) -> dict[int, tuple[object, ...]]:
    return {
        one.producer_id: (one.epoch, one.batches, one.coordinator_epoch, one.txn_start)
        for one in states.active()
    }


def test_a_producer_without_batches_has_kafkas_entry() -> None:
    states = ProducerStates()
    ended(states, marker(9, epoch=2, coordinator_epoch=3), 7)

    entry = encode_snapshot(states.active())[10:]

    assert entry[8:22] == b"\0\2" + b"\xff" * 12
    assert entry[-12:] == (3).to_bytes(4, "big") + b"\xff" * 8
