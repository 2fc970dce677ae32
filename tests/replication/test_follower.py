"""A follower asks for what follows its log, and does what each answer takes."""

import pytest

from waystation.model.error_codes import ErrorCode
from waystation.model.ids import LeaderEpoch, NodeId
from waystation.model.offsets import Millis, Offset
from waystation.replication.epochs import EpochEnd, EpochStart, LeaderEpochs
from waystation.replication.follower import (
    BACK_OFF_ELECTED_MAX_MS,
    BACK_OFF_MAX_MS,
    BACK_OFF_MS,
    STALE,
    Answer,
    Append,
    BackOff,
    FollowerState,
    Question,
    StartAnew,
    Step,
    Truncate,
)
from waystation.replication.leader import divergence

LEADER, OTHER = NodeId(1), NodeId(2)
EPOCH = LeaderEpoch(5)
NOW = Millis(1_000)


class Held:
    """A log of so many offsets, whose epochs began where they are said to."""

    def __init__(self, log_end: int, log_start: int = 0, **epochs: int) -> None:
        self.log_start, self.log_end = Offset(log_start), Offset(log_end)
        self.safe_end = self.log_end
        self.epochs = LeaderEpochs(
            EpochStart(LeaderEpoch(int(name[1:])), Offset(at)) for name, at in epochs.items()
        )


def asked(state: FollowerState, log: Held) -> Question:
    question = state.ask(log, NOW)
    assert question is not None
    return question


def told(state: FollowerState, log: Held, answer: Answer) -> Step:
    return state.decide(asked(state, log), answer, log, NOW)


@pytest.fixture
def state() -> FollowerState:
    return FollowerState(LEADER, EPOCH)


def test_a_question_says_where_the_log_ends_and_who_wrote_its_last_batch(
    state: FollowerState,
) -> None:
    question = asked(state, Held(12, 3, e2=3, e4=9))

    assert question[:6] == (LEADER, EPOCH, 12, 4, 12, 3)


def test_one_question_is_under_way_at_a_time(state: FollowerState) -> None:
    log = Held(0)
    asked(state, log)

    assert state.ask(log, NOW) is None


def test_nobody_is_asked_where_nobody_leads() -> None:
    assert FollowerState(None, EPOCH).ask(Held(0), NOW) is None


def test_what_follows_is_appended_and_the_mark_taken_over(state: FollowerState) -> None:
    log, data = Held(4, e5=0), memoryview(b"batches")
    step = told(state, log, Answer(mark=Offset(6), log_start=Offset(1), data=data))

    assert step == Append(data, Offset(6), Offset(1))

    log.log_end = Offset(5)
    state.carried_out(step, log)

    assert state.mark == 5
    assert state.ask(log, NOW) is not None


def test_the_mark_of_a_new_leader_that_knows_less_is_not_taken_over(state: FollowerState) -> None:
    log = Held(8, e5=0)
    state.mark = Offset(6)
    state.carried_out(told(state, log, Answer(mark=Offset(2))), log)

    assert state.mark == 6


def test_an_answer_to_what_was_asked_before_a_new_epoch_is_stale(state: FollowerState) -> None:
    log = Held(4, e5=0)
    question = asked(state, log)

    assert state.obey(OTHER, LeaderEpoch(6))
    assert state.decide(question, Answer(), log, NOW) is STALE
    assert asked(state, log)[:2] == (OTHER, 6)


def test_an_answer_that_comes_twice_counts_once(state: FollowerState) -> None:
    log = Held(4, e5=0)
    question = asked(state, log)
    state.carried_out(state.decide(question, Answer(), log, NOW), log)
    asked(state, log)

    assert state.decide(question, Answer(), log, NOW) is STALE


def test_an_epoch_that_is_no_news_changes_nothing(state: FollowerState) -> None:
    assert not state.obey(OTHER, EPOCH)
    assert state.leader == LEADER


@pytest.mark.parametrize(
    ("ours", "leaders", "cut"),
    [
        (Held(9, e1=0, e3=6), EpochEnd(LeaderEpoch(3), Offset(7)), 7),
        (Held(9, e1=0, e3=6), EpochEnd(LeaderEpoch(1), Offset(8)), 6),
        (Held(9, e1=0, e3=6), EpochEnd(LeaderEpoch(2), Offset(4)), 4),
        (Held(9, 5, e3=5), EpochEnd(LeaderEpoch(1), Offset(3)), 5),
    ],
)
def test_a_diverging_tail_is_cut_where_both_end_the_epoch(
    state: FollowerState, ours: Held, leaders: EpochEnd, cut: int
) -> None:
    assert told(state, ours, Answer(diverging=leaders)) == Truncate(
        Offset(cut), loses_committed=False
    )


def test_a_cut_below_the_mark_is_told(state: FollowerState) -> None:
    state.mark = Offset(8)
    log = Held(9, e3=0)
    step = told(state, log, Answer(diverging=EpochEnd(LeaderEpoch(3), Offset(7))))

    assert step == Truncate(Offset(7), loses_committed=True)

    log.log_end = Offset(7)
    state.carried_out(step, log)

    assert state.mark == 7


def test_an_epoch_without_records_is_forgotten_rather_than_cut_for_ever(
    state: FollowerState,
) -> None:
    log = Held(50, 50, e4=50)

    step = told(state, log, Answer(diverging=EpochEnd(LeaderEpoch(3), Offset(60))))

    assert step == StartAnew(Offset(50))


def test_a_log_that_ends_before_the_leaders_begins_starts_anew(state: FollowerState) -> None:
    log = Held(4, e5=0)
    step = told(state, log, Answer(ErrorCode.OFFSET_OUT_OF_RANGE, log_start=Offset(70)))

    assert step == StartAnew(Offset(70))


def test_a_log_is_not_thrown_away_for_a_leader_that_contradicts_itself(
    state: FollowerState,
) -> None:
    out_of_range = Answer(ErrorCode.OFFSET_OUT_OF_RANGE, log_start=Offset(1))

    assert isinstance(told(state, Held(4, e5=0), out_of_range), BackOff)

    unknown = Answer(diverging=EpochEnd(LeaderEpoch(9), Offset(1)))

    assert isinstance(told(FollowerState(LEADER, EPOCH), Held(4, e5=0), unknown), BackOff)


@pytest.mark.parametrize(
    ("error", "longest_ms"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, BACK_OFF_MAX_MS),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, BACK_OFF_ELECTED_MAX_MS),
    ],
)
def test_a_leader_that_refuses_is_asked_again_later_and_later(
    state: FollowerState, error: ErrorCode, longest_ms: int
) -> None:
    log, now, waits = Held(0), NOW, []
    for _ in range(8):
        question = state.ask(log, now)
        assert question is not None
        step = state.decide(question, Answer(error), log, now)
        assert isinstance(step, BackOff)
        assert state.ask(log, Millis(step.until - 1)) is None
        waits.append(step.until - now)
        now = step.until

    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (BACK_OFF_MS, longest_ms)


def test_a_question_that_nobody_answers_is_repeated(state: FollowerState) -> None:
    log = Held(0)
    state.failed(asked(state, log), NOW)

    assert state.ask(log, NOW) is None
    assert state.ask(log, Millis(NOW + BACK_OFF_MS)) is not None


@pytest.mark.parametrize(
    ("offset", "last_epoch", "found"),
    [
        (0, -1, None),
        (20, 4, None),
        (21, 4, (4, 20)),
        (20, 6, (4, 20)),
        (10, 2, None),
        (11, 2, (2, 10)),
        (9, 3, (2, 10)),
        (1, 0, None),
        (4, 0, (0, 3)),
    ],
)
def test_the_leader_names_where_a_replica_must_have_left(
    offset: int, last_epoch: int, found: EpochEnd | None
) -> None:
    leader = Held(20, 3, e2=3, e4=10)

    assert (
        divergence(leader.epochs, leader.log_end, Offset(offset), LeaderEpoch(last_epoch)) == found
    )


def test_a_leader_without_records_has_nothing_that_is_not_cut() -> None:
    assert divergence(LeaderEpochs(), Offset(0), Offset(7), EPOCH) == (EPOCH, 0)
