"""Who may write into a sink, what is decided, and what may be taken back.

Pure rules over a sink's record (``sink_state.py``); ``sink_steps.py`` carries them out.  A batch
is written by tasks, each in a transaction that it prepares; the driver then *decides* the batch by
noting its transactions in the sink's record, and commits them.  Promises:

1. of every decided batch each row becomes visible exactly once, and of what was not decided none;
2. a run that was taken over decides nothing more: deciding demands that the sink is still its own;
3. nothing is aborted that is decided, or that anybody could still decide.

The third is the hard one.  Whoever wants to abort transactions looks at them *first* and reads the
record *afterwards*, and aborts by the exact producer id and epoch that it saw.  Then what it saw
and the record does not name was written by

- a former run, which cannot decide any more once the record names another run or none, or
- an attempt of the same run at a batch that is decided without it, or
- while the record says ``cleaning``, nobody who counts: a run's own tasks write only after that.

So ``leftovers_of_others`` and ``leftovers_of_batch`` give nothing where the record has gone on in
the meantime.  More rules were found by thought and simulation, and are not obvious:

- A task that writes aborts nothing, and takes a transactional id under which nothing is open.  What
  it finds there may be the work of another attempt at the same task that will be decided: Spark
  numbers attempts anew when it repeats a stage, and does not tell Python which stage it is.
- A driver whose commit failed does not know whether its decision will still arrive.  Before it
  aborts what its tasks prepared, it gives up the sink (``given_up``) by a change of the record,
  which shuts out every change that is under way; merely reading it would not.
- A task that has prepared looks at the record once more (``came_too_late``).  One that slept while
  its batch was decided without it takes its rows back by itself; otherwise readers would wait
  behind them until the next batch.
- The number of rows of a decided batch is kept.  Where a checkpoint was set back by exactly one
  batch, the batch comes again with other rows under the same number, which would be dropped.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from waystation.client.transactor import PreparedTransaction
from waystation.spark.sink_errors import (
    OlderCheckpointError,
    ReplayDiffersError,
    SinkError,
    SinkOfAnotherQueryError,
    SinkTakenOverError,
)
from waystation.spark.sink_state import (
    CLEANING,
    PAST_RUNS_MAX,
    ROWS_UNKNOWN,
    WRITING,
    Attempt,
    SinkState,
    is_of_batch,
)

__all__ = [
    "Next",
    "Verdict",
    "came_too_late",
    "check_replay",
    "claimed",
    "cleaned",
    "decided",
    "finished",
    "given_up",
    "has_decided",
    "is_decided",
    "leftovers_of_batch",
    "leftovers_of_operator",
    "leftovers_of_others",
    "may_take_back",
    "next_step",
    "resolved",
    "taken_by_operator",
]


class Next(Enum):
    """What a task has to do before it writes, or instead."""

    CLAIM = "claim"
    CLEAN = "clean"
    WRITE = "write"
    DROP = "drop"


class Verdict(NamedTuple):
    """What to do next, and the number of the batch that is to be written or dropped."""

    next: Next
    batch: int


# --- tasks --------------------------------------------------------------------------------------


def next_step(state: SinkState | None, attempt: Attempt) -> Verdict:
    """What a task with rows does next; raises if it may not write at all."""
    if state is None:
        return Verdict(Next.CLAIM, 0 if attempt.batch is None else attempt.batch)
    if state.query != attempt.query:
        raise SinkOfAnotherQueryError(attempt.sink, state.query, state.batch, attempt.query)
    if attempt.batch is None and state.decided_by == attempt.run:
        return Verdict(Next.DROP, state.batch)
    batch = state.batch + 1 if attempt.batch is None else attempt.batch
    if batch < state.batch:
        raise OlderCheckpointError(attempt.sink, batch, state.batch)
    if batch == state.batch:
        return Verdict(Next.DROP, batch)
    if state.run == attempt.run:
        return Verdict(Next.CLEAN if state.phase == CLEANING else Next.WRITE, batch)
    if attempt.run in state.past_runs:
        raise SinkTakenOverError(attempt.sink, attempt.run, state.run)
    return Verdict(Next.CLAIM, batch)


def claimed(state: SinkState | None, attempt: Attempt) -> SinkState | None:
    """The sink is the run's own, which shuts every other out; unchanged if there is no need."""
    if next_step(state, attempt).next is not Next.CLAIM:
        return state
    if state is None:
        return SinkState(attempt.query, attempt.run)
    return _taken(state, attempt.run)


def cleaned(
    state: SinkState | None, attempt: Attempt, ended: Sequence[PreparedTransaction]
) -> SinkState | None:
    """What others left is gone, and what was decided is committed (``ended``): write."""
    if next_step(state, attempt).next is not Next.CLEAN or state is None:
        return state
    if not state.ended and state.decided != tuple(ended):
        return state  # somebody decided meanwhile: look again
    return state._replace(phase=WRITING, ended=True)


def came_too_late(state: SinkState | None, attempt: Attempt, own: PreparedTransaction) -> bool:
    """Whether nobody will ever decide what a task has just prepared."""
    if state is None:
        return True
    if own in state.decided:
        return False
    return state.run != attempt.run or is_decided(state, attempt)


# --- the driver ---------------------------------------------------------------------------------


def is_decided(state: SinkState, attempt: Attempt) -> bool:
    """Whether the batch, or one after it, is decided."""
    assert attempt.batch is not None, "a batch that was written has a number"
    return state.batch >= attempt.batch


def has_decided(state: SinkState | None, attempt: Attempt) -> bool:
    """Whether this very run has decided the batch, and nothing was decided since."""
    return state is not None and (state.batch, state.decided_by) == (attempt.batch, attempt.run)


def decided(
    state: SinkState | None,
    attempt: Attempt,
    transactions: Sequence[PreparedTransaction],
    rows: int,
) -> SinkState:
    """These transactions are the batch; to decide the same once more changes nothing."""
    assert attempt.batch is not None, "a batch that was written has a number"
    if state is not None and has_decided(state, attempt):
        if state.decided != tuple(transactions):
            raise SinkError(attempt.sink, f"batch {attempt.batch} was decided otherwise")
        return state
    holds = state is not None and (state.query, state.run) == (attempt.query, attempt.run)
    if state is None or not holds or state.phase != WRITING or is_decided(state, attempt):
        holder = "" if state is None or holds else state.run
        raise SinkTakenOverError(attempt.sink, attempt.run, holder)
    if not state.ended:
        raise SinkError(attempt.sink, f"batch {state.batch} has not ended yet: start again")
    return state._replace(
        batch=attempt.batch,
        decided=tuple(transactions),
        ended=False,
        decided_by=attempt.run,
        rows=rows,
    )


def finished(
    state: SinkState | None, batch: int, ended: Sequence[PreparedTransaction]
) -> SinkState | None:
    """All transactions of the batch are committed."""
    if state is None or (state.batch, state.decided) != (batch, tuple(ended)):
        return state
    return state._replace(ended=True)


def given_up(state: SinkState | None, attempt: Attempt) -> SinkState | None:
    """The run decides nothing more, unless it has decided this batch already."""
    if state is None or state.run != attempt.run or is_decided(state, attempt):
        return state
    return _taken(state, "")


def may_take_back(state: SinkState | None, attempt: Attempt, own: PreparedTransaction) -> bool:
    """Whether a driver may abort what its task prepared, in view of a state after ``given_up``."""
    if state is None:
        return True
    return own not in state.decided and (state.run != attempt.run or is_decided(state, attempt))


def check_replay(state: SinkState, attempt: Attempt, rows: int) -> None:
    """Raise if a batch that was dropped, because it is decided, is not the one that is."""
    is_known = state.batch == attempt.batch and state.rows != ROWS_UNKNOWN
    if is_known and state.rows != rows:
        raise ReplayDiffersError(attempt.sink, state.batch, state.rows, rows)


# --- what was left behind -----------------------------------------------------------------------


def leftovers_of_others(
    state: SinkState | None, attempt: Attempt, seen: Iterable[PreparedTransaction]
) -> list[PreparedTransaction]:
    """Which of those that were ``seen`` before the state was read a cleaning run may abort."""
    if state is None or state.run != attempt.run or state.phase != CLEANING:
        return []
    return [one for one in seen if one not in state.decided]


def leftovers_of_batch(
    state: SinkState | None, attempt: Attempt, seen: Iterable[PreparedTransaction]
) -> list[PreparedTransaction]:
    """Which of those that were ``seen`` the driver may abort that has just decided the batch.

    Only ids that this batch writes under: were the next one under way, which cannot be, it would
    not be harmed.
    """
    if state is None or state.run != attempt.run or state.batch != attempt.batch:
        return []
    return [
        one
        for one in seen
        if one not in state.decided and is_of_batch(attempt.sink, state.batch, one[0])
    ]


# --- operators ----------------------------------------------------------------------------------


def taken_by_operator(state: SinkState | None, run: str) -> SinkState | None:
    """An operator has the sink, whoever had it."""
    return state if state is None or state.run == run else _taken(state, run)


def leftovers_of_operator(
    state: SinkState | None, run: str, seen: Iterable[PreparedTransaction]
) -> list[PreparedTransaction]:
    """Which of those that were ``seen`` an operator may abort who has taken the sink."""
    if state is None or state.run != run:
        return []
    return [one for one in seen if one not in state.decided]


def resolved(state: SinkState | None, run: str) -> SinkState | None:
    """Nothing of the sink is open any more, and its query may go on with the next batch."""
    if state is None or state.run != run:
        return state
    return _taken(state, "")._replace(ended=True, rows=ROWS_UNKNOWN)


def _taken(state: SinkState, run: str) -> SinkState:
    """Another run has the sink, or none; the one before it never has it again."""
    past = (*state.past_runs, state.run) if state.run else state.past_runs
    return state._replace(run=run, phase=CLEANING, past_runs=past[-PAST_RUNS_MAX:])
