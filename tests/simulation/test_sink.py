"""A sink that writes exactly once, with everything that can befall Spark and its brokers.

What is promised stands in ``spark/decisions.py``; ``sink_life.py`` says what happens to it here.
A failure prints its seed; the seed becomes a line of ``regressions.txt``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.simulation import sink_processes
from tests.simulation.sink_broker import BrokenPromiseError
from tests.simulation.sink_life import Life
from tests.support.soak import count
from waystation.client.transactor import PreparedTransaction
from waystation.spark import decisions
from waystation.spark.decisions import Next, Verdict
from waystation.spark.ledger import Ledger
from waystation.spark.sink_state import WRITING, Attempt, SinkState
from waystation.spark.sink_steps import Admitted, SinkSteps
from waystation.transactions.settings import TransactionSettings

SEEDS = 120
REGRESSIONS = Path(__file__).with_name("regressions.txt")
Patch = pytest.MonkeyPatch
State = SinkState | None


def remembered() -> list[int]:
    """The seeds that once found something."""
    lines = (line.split("#")[0].split() for line in REGRESSIONS.read_text().splitlines())
    return [int(words[1]) for words in lines if words and words[0] == "sink"]


@pytest.mark.parametrize("seed", [*range(count(80, 3_000)), *remembered()])
def test_every_row_of_every_batch_is_there_once(seed: int) -> None:
    Life(seed).run()


@pytest.mark.parametrize("seed", range(count(10, 500)))
def test_what_the_operator_takes_away_is_missing_and_nothing_else(seed: int) -> None:
    """A limit for prepared transactions that is shorter than some sleep over the decision."""
    life = Life(seed, TransactionSettings(transaction_prepared_max_ms=2_000))
    stuck = ""
    try:
        life.run()
    except BrokenPromiseError as error:
        stuck = str(error)

    if stuck:  # only a batch that lost decided rows may stop the sink, and it says so
        assert stuck.startswith("stuck at batch")
        assert life.broker.lost_by_limit
        assert life.errors["DecidedRowsMissingError"]


def test_the_same_seed_is_the_same_life() -> None:
    def lived(seed: int) -> tuple[int, object]:
        life = Life(seed)
        life.run()
        return life.loop.schedule.steps, life.errors

    assert lived(3) == lived(3)


def test_much_happens_in_these_lives() -> None:
    """Otherwise the test above says little."""
    seen: set[str] = set()
    for seed in range(16):
        life = Life(seed)
        life.run()
        seen |= life.errors.keys()

    assert {"SinkTakenOverError", "WrittenTooLateError", "OlderCheckpointError"} <= seen


# --- planted bugs -----------------------------------------------------------------------------


def forgets_former_runs(patch: Patch) -> None:
    honest = decisions._taken

    def taken(state: SinkState, run: str) -> SinkState:
        return honest(state, run)._replace(past_runs=())

    patch.setattr(decisions, "_taken", taken)


def decides_for_whoever_asks(patch: Patch) -> None:
    honest = decisions.decided

    def decided(state: State, attempt: Attempt, *rest: Any) -> SinkState:
        if state is not None and state.batch < (attempt.batch or 0):
            state = state._replace(run=attempt.run, phase=WRITING, ended=True)
        return honest(state, attempt, *rest)

    patch.setattr(decisions, "decided", decided)


def writes_a_decided_batch_again(patch: Patch) -> None:
    honest = decisions.next_step

    def next_step(state: State, attempt: Attempt) -> Verdict:
        verdict = honest(state, attempt)
        if verdict.next is Next.DROP and state is not None:
            return honest(state._replace(batch=state.batch - 1), attempt)
        return verdict

    patch.setattr(decisions, "next_step", next_step)


def cleans_while_others_write(patch: Patch) -> None:
    """Looks at who has the sink, and not whether its own tasks write already."""

    async def clean(steps: SinkSteps, attempt: Attempt) -> State:
        seen = [one.transaction for one in await steps._transactions.open_of(attempt.sink)]
        state = await steps._ledger.read(attempt.sink)
        ended = () if state is None or state.ended else state.decided
        await steps._commit_all(attempt.sink, ended)
        if state is not None and state.run == attempt.run:
            await steps._take_back([one for one in seen if one not in state.decided])
        return await steps._ledger.change(
            attempt.sink, lambda now: decisions.cleaned(now, attempt, ended)
        )

    patch.setattr(SinkSteps, "_clean", clean)


def reads_the_record_before_it_looks(patch: Patch) -> None:
    async def clean(steps: SinkSteps, attempt: Attempt) -> State:
        state = await steps._ledger.read(attempt.sink)
        seen = [one.transaction for one in await steps._transactions.open_of(attempt.sink)]
        ended = () if state is None or state.ended else state.decided
        await steps._commit_all(attempt.sink, ended)
        await steps._take_back(decisions.leftovers_of_others(state, attempt, seen))
        return await steps._ledger.change(
            attempt.sink, lambda now: decisions.cleaned(now, attempt, ended)
        )

    patch.setattr(SinkSteps, "_clean", clean)


def aborts_what_is_decided(patch: Patch) -> None:
    honest = decisions.leftovers_of_others

    def leftovers(state: State, attempt: Attempt, seen: Any) -> list[PreparedTransaction]:
        bare = None if state is None else state._replace(decided=())
        return honest(bare, attempt, seen)

    async def commit_nothing(*_: object) -> tuple[()]:
        return ()

    patch.setattr(decisions, "leftovers_of_others", leftovers)
    patch.setattr(SinkSteps, "_commit_all", commit_nothing)


def sweeps_whoever_has_the_sink(patch: Patch) -> None:
    def leftovers(state: State, attempt: Attempt, seen: Any) -> list[PreparedTransaction]:
        return [] if state is None else [one for one in seen if one not in state.decided]

    patch.setattr(decisions, "leftovers_of_batch", leftovers)


def takes_back_without_giving_up(patch: Patch) -> None:
    """Reads the record where it must change it: a decision may still be under way."""
    honest = Ledger.change

    async def change(ledger: Ledger, sink: str, change: Any) -> State:
        if "given_up" in change.__code__.co_names:
            return await ledger.read(sink)
        return await honest(ledger, sink, change)

    patch.setattr(Ledger, "change", change)
    patch.setattr(
        decisions, "may_take_back", lambda state, _, own: own not in getattr(state, "decided", ())
    )


def forgets_to_end_what_is_decided(patch: Patch) -> None:
    honest = decisions.decided

    def decided(*arguments: Any) -> SinkState:
        return honest(*arguments)._replace(ended=True)

    patch.setattr(decisions, "decided", decided)


def makes_way_by_aborting(patch: Patch) -> None:
    async def make_way(steps: SinkSteps, admitted: Admitted) -> Admitted:
        found = await steps._transactions.open_under(admitted.transactional_id)
        if found is not None and found.is_prepared:
            await steps._take_back([found.transaction])
        return admitted

    patch.setattr(SinkSteps, "make_way", make_way)


def keeps_what_comes_too_late(patch: Patch) -> None:
    """Found only where nobody sweeps behind it."""
    patch.setattr(decisions, "came_too_late", lambda *_: False)
    patch.setattr(decisions, "leftovers_of_others", lambda *_: [])


def changes_without_the_mutex(patch: Patch) -> None:
    honest = sink_processes.Shelf.take
    names = iter(range(1 << 30))

    async def take(shelf: sink_processes.Shelf, sink: str) -> None:
        patch.setattr(sink_processes, "mutex_id", lambda sink: f"{sink}-{next(names)}")
        await honest(shelf, sink)

    patch.setattr(sink_processes.Shelf, "take", take)


def believes_what_it_knew(patch: Patch) -> None:
    """Takes the record for what it was at the last change, without writing."""

    async def attempt(ledger: Ledger, sink: str, change: Any) -> State:
        if sink not in ledger._held:
            await ledger._shelf.take(sink)
            ledger._held[sink] = await ledger._shelf.read(sink)
        before = ledger._held[sink]
        after = change(before)
        return before if after == before else await ledger._write(sink, before, after)

    patch.setattr(Ledger, "_try", attempt)


def reads_only_what_is_stable(patch: Patch) -> None:
    """Does not wait for the end of the log, so that a change just made is not seen."""

    async def read(shelf: sink_processes.Shelf, sink: str) -> State:
        broker = shelf._process.broker

        def stable() -> State:
            end = next(
                (at for at, one in enumerate(broker.ledger) if one.committed is None),
                len(broker.ledger),
            )
            return broker.state_before(max(end - 1, 0))

        answer: State = await shelf._process.ask(stable)
        return answer

    patch.setattr(sink_processes.Shelf, "read", read)


BUGS: dict[Callable[[Patch], None], int] = {
    forgets_former_runs: 3,
    decides_for_whoever_asks: 79,
    writes_a_decided_batch_again: 3,
    cleans_while_others_write: 107,
    reads_the_record_before_it_looks: 3,
    aborts_what_is_decided: 0,
    sweeps_whoever_has_the_sink: 342,
    takes_back_without_giving_up: 11,
    forgets_to_end_what_is_decided: 0,
    makes_way_by_aborting: 92,
    keeps_what_comes_too_late: 248,
    changes_without_the_mutex: 0,
    believes_what_it_knew: 1,
    reads_only_what_is_stable: 0,
}
"""What is planted, and a seed at which it is found."""


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    first = BUGS[plant]

    assert any(is_found(seed) for seed in range(first, first + SEEDS))


def is_found(seed: int) -> bool:
    try:
        Life(seed).run()
    except (AssertionError, RuntimeError):
        return True
    return False
