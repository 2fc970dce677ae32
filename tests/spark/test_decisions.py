"""Who may write into a sink, what is decided, and what may be taken back."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.client.transactor import PreparedTransaction
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.spark import decisions
from waystation.spark.decisions import Next
from waystation.spark.sink_errors import (
    DecidedRowsMissingError,
    LedgerBusyError,
    LedgerFormatError,
    NoTwoPhaseCommitError,
    OlderCheckpointError,
    PreparedRowsGoneError,
    ReplayDiffersError,
    SinkError,
    SinkOfAnotherQueryError,
    SinkTakenOverError,
    WrittenTooLateError,
)
from waystation.spark.sink_state import (
    CLEANING,
    NO_BATCH,
    PAST_RUNS_MAX,
    WRITING,
    Attempt,
    SinkState,
    Task,
    decode_state,
    encode_state,
    is_of_batch,
    is_sink_id,
    mutex_id,
    task_of,
    transactional_id,
)

RUN = Attempt("s", "q", "run-1", 0)
NEXT = RUN._replace(batch=1)
LATER_RUN = Attempt("s", "q", "run-2", 0)


def txn(task: int, batch: int = 0, epoch: int = 0) -> PreparedTransaction:
    name = transactional_id("s", batch, Task(task))
    return PreparedTransaction(name, ProducerId(task), ProducerEpoch(epoch))


def claimed(attempt: Attempt = RUN, state: SinkState | None = None) -> SinkState:
    after = decisions.claimed(state, attempt)
    assert after is not None
    return after


def writing(attempt: Attempt = RUN, state: SinkState | None = None) -> SinkState:
    after = decisions.cleaned(claimed(attempt, state), attempt, ())
    assert after is not None
    return after


def decided(attempt: Attempt = RUN, state: SinkState | None = None) -> SinkState:
    return decisions.decided(state or writing(attempt), attempt, [txn(0), txn(1)], 7)


def finished(attempt: Attempt = RUN) -> SinkState:
    after = decisions.finished(decided(attempt), attempt.batch or 0, [txn(0), txn(1)])
    assert after is not None
    return after


# --- tasks ------------------------------------------------------------------------------------


def test_the_first_run_claims_cleans_and_writes() -> None:
    assert decisions.next_step(None, RUN).next is Next.CLAIM
    assert decisions.next_step(claimed(), RUN).next is Next.CLEAN
    assert decisions.next_step(writing(), RUN) == (Next.WRITE, 0)


def test_a_run_claims_once_for_all_its_batches() -> None:
    assert decisions.next_step(finished(), NEXT) == (Next.WRITE, 1)


def test_a_decided_batch_is_dropped_by_whatever_run() -> None:
    assert decisions.next_step(decided(), RUN).next is Next.DROP
    assert decisions.next_step(decided(), LATER_RUN).next is Next.DROP
    assert decisions.claimed(decided(), LATER_RUN) == decided()


def test_a_later_run_claims_and_cleans_before_it_writes() -> None:
    taken = claimed(LATER_RUN._replace(batch=1), decided())

    assert (taken.run, taken.phase, taken.past_runs) == ("run-2", CLEANING, ("run-1",))
    assert (taken.batch, taken.decided, taken.ended) == (0, (txn(0), txn(1)), False)


def test_a_former_run_never_has_the_sink_again() -> None:
    taken = writing(LATER_RUN, writing())

    with pytest.raises(SinkTakenOverError, match="run run-2 has taken it over from run run-1"):
        decisions.next_step(taken, RUN)


def test_former_runs_are_remembered_for_a_while() -> None:
    state: SinkState | None = None
    for number in range(PAST_RUNS_MAX + 5):
        state = claimed(RUN._replace(run=f"run-{number}"), state)
    assert state is not None

    assert len(state.past_runs) == PAST_RUNS_MAX
    assert state.past_runs[-1] == f"run-{PAST_RUNS_MAX + 3}"


def test_another_query_is_refused_with_the_remedies() -> None:
    with pytest.raises(SinkOfAnotherQueryError) as refused:
        decisions.next_step(decided(), RUN._replace(query="other"))

    for said in ("query q", "batch 0", "query other", "sinkId", "checkpoint", "--forget"):
        assert said in str(refused.value)


def test_an_older_checkpoint_is_refused() -> None:
    at_nine = finished()._replace(batch=9)

    with pytest.raises(OlderCheckpointError, match="batch 8 was to be written, and batch 9"):
        decisions.next_step(at_nine, RUN._replace(batch=8))


def test_batches_without_rows_leave_gaps_in_the_numbers() -> None:
    assert decisions.next_step(finished(), RUN._replace(batch=5)) == (Next.WRITE, 5)


def test_a_batch_without_a_number_gets_the_next_one() -> None:
    unnumbered = RUN._replace(batch=None)

    assert decisions.next_step(None, unnumbered).batch == 0
    assert decisions.next_step(finished(), LATER_RUN._replace(batch=None)) == (Next.CLAIM, 1)
    assert decisions.next_step(finished(), unnumbered) == (Next.DROP, 0)  # it has been decided


# --- what is prepared -------------------------------------------------------------------------


def test_what_is_prepared_in_time_is_kept() -> None:
    assert not decisions.came_too_late(writing(), RUN, txn(0))
    assert not decisions.came_too_late(decided(), RUN, txn(0))


def test_what_is_prepared_too_late_is_taken_back() -> None:
    assert decisions.came_too_late(decided(), RUN, txn(0, epoch=1))  # decided without it
    assert decisions.came_too_late(claimed(LATER_RUN, writing()), RUN, txn(0))
    assert decisions.came_too_late(None, RUN, txn(0))


# --- the driver -------------------------------------------------------------------------------


def test_to_decide_the_same_twice_changes_nothing() -> None:
    once = decided()

    assert decisions.decided(once, RUN, [txn(0), txn(1)], 7) == once
    with pytest.raises(SinkError, match="otherwise"):
        decisions.decided(once, RUN, [txn(0)], 7)


def test_a_decision_is_recognised_after_another_run_has_the_sink() -> None:
    taken = claimed(LATER_RUN._replace(batch=1), decided())

    assert decisions.decided(taken, RUN, [txn(0), txn(1)], 7) == taken


@pytest.mark.parametrize(
    "state",
    [
        None,
        claimed(),  # its tasks cannot have written yet
        claimed(LATER_RUN, writing()),
        finished()._replace(decided_by="run-2"),
        finished()._replace(batch=3, decided_by="run-2"),
    ],
)
def test_only_who_has_the_sink_decides(state: SinkState | None) -> None:
    with pytest.raises(SinkTakenOverError):
        decisions.decided(state, RUN, [txn(0)], 1)


def test_nothing_is_decided_over_what_has_not_ended() -> None:
    with pytest.raises(SinkError, match="batch 0 has not ended"):
        decisions.decided(decided(), NEXT, [txn(0, batch=1)], 1)


def test_a_batch_is_finished_once_its_transactions_are() -> None:
    assert finished().ended
    assert decisions.finished(decided(), 1, [txn(0), txn(1)]) == decided()
    assert decisions.finished(decided(), 0, [txn(0)]) == decided()


def test_who_gives_up_decides_nothing_more() -> None:
    given_up = decisions.given_up(writing(), RUN)

    with pytest.raises(SinkTakenOverError):
        decisions.decided(given_up, RUN, [txn(0)], 1)
    with pytest.raises(SinkTakenOverError):
        decisions.next_step(given_up, RUN)
    assert decisions.may_take_back(given_up, RUN, txn(0))
    assert decisions.next_step(given_up, LATER_RUN).next is Next.CLAIM


def test_what_is_decided_is_never_taken_back() -> None:
    assert decisions.given_up(decided(), RUN) == decided()
    assert not decisions.may_take_back(decided(), RUN, txn(0))
    assert not decisions.may_take_back(writing(), RUN, txn(0))  # somebody may still decide


def test_a_replay_with_other_rows_is_noticed() -> None:
    decisions.check_replay(finished(), RUN, 7)
    with pytest.raises(ReplayDiffersError, match="with 7 rows, and came again with 8"):
        decisions.check_replay(finished(), RUN, 8)

    decisions.check_replay(finished()._replace(rows=-1), RUN, 8)


# --- what was left behind ---------------------------------------------------------------------


def test_a_run_aborts_what_others_left_only_while_it_cleans() -> None:
    seen = [txn(0), txn(5)]
    cleaning = claimed(LATER_RUN._replace(batch=1), decided())

    assert decisions.leftovers_of_others(cleaning, LATER_RUN, seen) == [txn(5)]
    assert not decisions.leftovers_of_others(cleaning._replace(phase=WRITING), LATER_RUN, seen)
    assert not decisions.leftovers_of_others(cleaning, RUN, seen)
    assert not decisions.leftovers_of_others(None, RUN, seen)


def test_cleaning_is_over_once_what_was_decided_is_committed() -> None:
    attempt = LATER_RUN._replace(batch=1)
    cleaning = claimed(attempt, decided())

    assert decisions.cleaned(cleaning, attempt, ()) == cleaning
    done = decisions.cleaned(cleaning, attempt, [txn(0), txn(1)])
    assert done is not None
    assert (done.phase, done.ended) == (WRITING, True)


def test_a_driver_sweeps_behind_its_own_batch_only() -> None:
    seen = [txn(0), txn(5), txn(5, batch=1)]

    assert decisions.leftovers_of_batch(finished(), RUN, seen) == [txn(5)]
    assert not decisions.leftovers_of_batch(finished(), LATER_RUN, seen)
    assert not decisions.leftovers_of_batch(finished()._replace(batch=1), RUN, seen)
    assert not decisions.leftovers_of_batch(None, RUN, seen)


# --- operators --------------------------------------------------------------------------------


def test_an_operator_takes_the_sink_and_lets_it_go() -> None:
    taken = decisions.taken_by_operator(decided(), "operator")
    assert taken is not None
    assert taken.run == "operator"

    free = decisions.resolved(taken, "operator")
    assert free is not None
    assert (free.run, free.ended, free.batch, free.rows) == ("", True, 0, -1)
    assert decisions.next_step(free, LATER_RUN._replace(batch=1)).next is Next.CLAIM
    assert decisions.resolved(decided(), "operator") == decided()
    assert decisions.taken_by_operator(None, "operator") is None


# --- names and bytes --------------------------------------------------------------------------


def test_no_sink_takes_the_transactions_of_another_for_its_own() -> None:
    for other in ("s.0", "s.0.1", "s/0", "s2", "", "0.1.2.3"):
        assert task_of("s", transactional_id(other, 0, Task(1))) is None
        assert task_of("s", mutex_id(other)) is None
    assert task_of("s", mutex_id("s")) is None
    assert task_of("s", "0.1.2.3") is None
    assert task_of("s", transactional_id("s", 7, Task(4, 2, 1))) == Task(4, 2, 1)


def test_ids_alternate_from_batch_to_batch() -> None:
    first = transactional_id("s", 0, Task(1))

    assert first != transactional_id("s", 1, Task(1))
    assert first == transactional_id("s", 2, Task(1))
    assert is_of_batch("s", 2, first)
    assert not is_of_batch("s", 1, first)
    assert not is_of_batch("t", 0, first)


def test_names_of_sinks() -> None:
    assert is_sink_id("orders-by.country_2")
    for wrong in ("", "a/b", "a b", "ä", "a" * 201):
        assert not is_sink_id(wrong)


states = st.builds(
    SinkState,
    query=st.text(),
    run=st.text(),
    phase=st.sampled_from([CLEANING, WRITING]),
    past_runs=st.lists(st.text()).map(tuple),
    batch=st.integers(NO_BATCH, 1 << 60),
    decided=st.lists(st.builds(txn, st.integers(0, 9), st.integers(0, 1))).map(tuple),
    ended=st.booleans(),
    decided_by=st.text(),
    rows=st.integers(-1, 1 << 60),
)


@given(states)
def test_a_record_is_read_as_it_was_written(state: SinkState) -> None:
    assert decode_state("s", encode_state("s", state)) == state


def test_a_record_that_nobody_understands_is_an_error() -> None:
    for content in (
        b"",
        b"{}",
        b"[]",
        b'{"version":2}',
        b'{"version":1}',
        b'{"version":1,"query":',
    ):
        with pytest.raises(LedgerFormatError, match="sink s"):
            decode_state("s", content)
    newer = encode_state("s", writing()).replace(b'"run"', b'"added":1,"run"')
    assert decode_state("s", newer) == writing()


def test_the_record_of_many_tasks_is_small() -> None:
    many = writing()._replace(decided=tuple(txn(one) for one in range(10_000)))

    assert len(encode_state("s", many)) < 300_000


@pytest.mark.parametrize(
    "error",
    [
        SinkOfAnotherQueryError("s", "q", 3, "r"),
        OlderCheckpointError("s", 1, 2),
        SinkTakenOverError("s", "a", ""),
        WrittenTooLateError("s", 3, "1 (attempt 0)"),
        PreparedRowsGoneError("s", 3, (("1 (attempt 0)", "id", "aborted_by_limit"),)),
        DecidedRowsMissingError("s", 3, (("1 (attempt 0)", "id", "aborted"),)),
        ReplayDiffersError("s", 3, 1, 2),
        NoTwoPhaseCommitError("s", "localhost:9092"),
        LedgerBusyError("s", "why", 10),
        LedgerFormatError("s", "why"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_between_processes(error: SinkError) -> None:
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert str(copy).startswith("sink s: ")
