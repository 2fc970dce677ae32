"""Exactly once, step by step; whole lives are in ``test_simulation.py``."""

import pytest

from waystation.model.errors import CorruptBatchError, ErrorCode
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder, records_of
from waystation.records.control import Marker, marker_batch
from waystation.records.header import check, peek
from waystation.scheduling.delivery import delivery_batch, fitting, outcome_of
from waystation.scheduling.mover import Append, Fence, Look, Mover, Outcome, Send
from waystation.scheduling.records import (
    Cancelled,
    Decided,
    Decision,
    Doubted,
    Retimed,
    Settled,
    Withdrawn,
    decision_batch,
    read_decision,
)

ONE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
PRODUCER = ProducerId(7)
EPOCH = ProducerEpoch(0)
NOW = Millis(1_000_000)
DAY_MS = 86_400_000
ITEMS = ((10, 3), (11, 1))


def leading() -> Mover:
    mover = Mover()
    mover.lead(LeaderEpoch(4))
    mover.enrol(PRODUCER)
    return mover


def sent(mover: Mover, now: Millis = NOW) -> Send:
    (ask,) = mover.work(now)
    assert isinstance(ask, Send)
    return ask


def test_nothing_is_sent_before_the_decision_is_committed() -> None:
    mover = leading()
    decided = mover.decide(ONE, ITEMS, NOW)

    assert decided == Decided(ONE, PRODUCER, EPOCH, 0, NOW, ITEMS)
    assert mover.work(NOW) == []

    mover.apply(decided)

    assert sent(mover).batch == decided


def test_one_batch_is_under_way_per_target() -> None:
    mover = leading()
    mover.apply(mover.decide(ONE, ITEMS, NOW))

    assert mover.room(ONE, 9) == 0
    assert mover.room(OTHER, 9) == 9

    mover.answered(sent(mover).token, Outcome.DONE, NOW)

    assert mover.room(ONE, 9) == 9
    assert mover.decide(ONE, ITEMS, NOW).sequence == 2


def test_the_next_leader_repeats_the_batch_under_its_sequence() -> None:
    mover = leading()
    decided = mover.decide(ONE, ITEMS, NOW)
    mover.apply(decided)
    follower = Mover()
    follower.apply(decided)
    follower.lead(LeaderEpoch(5))

    assert sent(follower).batch == decided


def test_silence_is_followed_by_the_same_question_after_a_while() -> None:
    mover = leading()
    mover.apply(mover.decide(ONE, ITEMS, NOW))
    first = sent(mover)
    mover.answered(first.token, Outcome.UNCLEAR, NOW)

    assert mover.work(NOW) == []
    again_at = mover.next_deadline()
    assert again_at is not None
    assert sent(mover, again_at).batch == first.batch


def test_answers_to_others_and_to_older_questions_are_not_listened_to() -> None:
    mover = leading()
    mover.apply(mover.decide(ONE, ITEMS, NOW))
    first = sent(mover)
    mover.lead(LeaderEpoch(6))
    mover.answered(first.token, Outcome.DONE, NOW)

    assert mover.room(ONE, 9) == 0


def test_what_the_target_may_have_forgotten_is_fenced_and_looked_for() -> None:
    mover = leading()
    decided = mover.decide(ONE, ITEMS, NOW)
    mover.apply(decided)
    mover.lead(LeaderEpoch(5))
    later = Millis(NOW + DAY_MS)

    (doubt,) = mover.work(later)
    assert doubt == Append(Doubted(ONE, PRODUCER, ProducerEpoch(1)))
    mover.apply(Doubted(ONE, PRODUCER, ProducerEpoch(1)))
    (fence,) = mover.work(later)
    assert isinstance(fence, Fence)
    assert fence.producer_epoch == 1
    mover.answered(fence.token, Outcome.DONE, later)
    (look,) = mover.work(later)
    assert isinstance(look, Look)
    assert look.batch == decided
    mover.answered(look.token, Outcome.ABSENT, later)
    (verdict,) = mover.work(later)
    assert verdict == Append(Withdrawn(ONE, PRODUCER, ProducerEpoch(1), 0))

    assert mover.apply(Withdrawn(ONE, PRODUCER, ProducerEpoch(1), 0)) == ITEMS
    assert mover.decide(ONE, ITEMS, later) == Decided(
        ONE, PRODUCER, ProducerEpoch(1), 0, later, ITEMS
    )


def test_what_is_refused_comes_in_halves_and_what_is_refused_alone_is_told() -> None:
    mover = leading()
    items: tuple[tuple[int, int], ...] = tuple((0, offset) for offset in range(4))
    for expected in (4, 2, 1):
        room = mover.room(ONE, 4)
        assert room == expected
        mover.apply(mover.decide(ONE, items[:room], NOW))
        mover.answered(sent(mover).token, Outcome.REFUSED, NOW)
        (withdrawn,) = mover.work(NOW)
        assert isinstance(withdrawn, Append)
        assert isinstance(withdrawn.decision, Withdrawn)
        assert withdrawn.decision.next_sequence == 0
        assert mover.apply(withdrawn.decision) == items[:room]

    assert mover.refused(ONE) == (0, 0)
    assert mover.refused(ONE) is None


def test_a_refusal_after_silence_is_no_proof_that_nothing_arrived() -> None:
    mover = leading()
    mover.apply(mover.decide(ONE, ITEMS, NOW))
    mover.answered(sent(mover).token, Outcome.UNCLEAR, NOW)
    later = Millis(NOW + 10_000)
    mover.answered(sent(mover, later).token, Outcome.REFUSED, later)

    assert mover.work(later) == [Append(Doubted(ONE, PRODUCER, ProducerEpoch(1)))]


def test_a_producer_whose_epochs_are_used_up_is_replaced() -> None:
    mover = Mover()
    mover.apply(Settled(ONE, PRODUCER, ProducerEpoch(32_767), 5))
    mover.lead(LeaderEpoch(1))

    assert mover.needs_producer(ONE)
    mover.enrol(ProducerId(8))
    assert mover.decide(ONE, ITEMS, NOW) == Decided(ONE, ProducerId(8), EPOCH, 0, NOW, ITEMS)


def test_sequences_begin_anew_behind_the_last() -> None:
    mover = Mover()
    mover.apply(Settled(ONE, PRODUCER, EPOCH, (1 << 31) - 1))
    mover.lead(LeaderEpoch(1))
    mover.apply(mover.decide(ONE, ITEMS, NOW))
    mover.answered(sent(mover).token, Outcome.DONE, NOW)

    assert mover.decide(ONE, ITEMS, NOW).sequence == 1


def test_what_has_arrived_is_settled_in_the_log_when_nothing_else_is_due() -> None:
    mover = leading()
    mover.apply(mover.decide(ONE, ITEMS, NOW))
    assert mover.settle() == []
    mover.answered(sent(mover).token, Outcome.DONE, NOW)

    (settled,) = mover.settle()
    assert settled.decision == Settled(ONE, PRODUCER, EPOCH, 2)
    mover.apply(settled.decision)
    mover.lead(LeaderEpoch(9))
    assert mover.work(NOW) == []


@pytest.mark.parametrize(
    "decision",
    [
        Decided(ONE, PRODUCER, ProducerEpoch(3), 5, NOW, ITEMS),
        Settled(OTHER, PRODUCER, EPOCH, 9),
        Doubted(TopicPartition("ö", 1), PRODUCER, ProducerEpoch(2)),
        Withdrawn(ONE, PRODUCER, EPOCH, 1),
        Cancelled(NOW, Offset(4)),
        Retimed(NOW, Offset(4), Millis(NOW + 1)),
    ],
)
def test_a_decision_is_a_control_batch_and_is_read_back(decision: Decision) -> None:
    batch = decision_batch(decision, NOW)

    assert check(batch).is_control
    assert read_decision(batch) == decision


def test_other_batches_are_no_decisions() -> None:
    builder = BatchBuilder()
    assert builder.append(b"k", b"v", timestamp=NOW)

    assert read_decision(builder.build()) is None
    assert read_decision(marker_batch(Marker(PRODUCER, EPOCH, 0, committed=True), NOW)) is None


def test_a_decision_that_is_cut_off_is_refused() -> None:
    batch = bytearray(decision_batch(Cancelled(NOW, Offset(4)), NOW))
    batch[-12:-8] = b"\x7f\xff\xff\xff"
    kind_at = batch.index(b"\x00\x00\x00\x05", 61)
    batch[kind_at + 3] = 99

    with pytest.raises(CorruptBatchError, match="kind 99 is not known here"):
        read_decision(batch)


def test_a_delivered_batch_has_key_value_and_headers_of_its_records() -> None:
    decided = Decided(ONE, PRODUCER, EPOCH, 5, NOW, ITEMS)
    headers = (("deliver-at", b"10"), ("trace", None))
    rows = [(3, 1, b"k", b"v", headers), (1, 2, None, None, ())]
    batch = delivery_batch(decided, rows)

    header = peek(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 5)
    assert [tuple(record)[1:] for record in records_of(batch)] == [
        (NOW, b"k", b"v", headers),
        (NOW, None, None, ()),
    ]


def test_as_many_are_decided_upon_as_fit_a_batch() -> None:
    rows = [(offset, 0, None, bytes(400), ()) for offset in range(10)]

    assert fitting(rows, 1_000) == 2
    assert fitting(rows, 100) == 1
    assert fitting(rows, 100_000) == 10


def test_whatever_is_not_known_to_be_clear_is_unclear() -> None:
    assert outcome_of(ErrorCode.NONE) is Outcome.DONE
    assert outcome_of(ErrorCode.NOT_LEADER_OR_FOLLOWER) is Outcome.NOT_NOW
    assert outcome_of(ErrorCode.MESSAGE_TOO_LARGE) is Outcome.REFUSED
    assert outcome_of(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is Outcome.FORGOTTEN
    assert outcome_of(ErrorCode.REQUEST_TIMED_OUT) is Outcome.UNCLEAR
    assert outcome_of(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND) is Outcome.UNCLEAR
