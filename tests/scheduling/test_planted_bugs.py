"""The lives of ``test_simulation.py`` are hard enough: whoever breaks a rule is found out."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.scheduling.life import lived
from tests.scheduling.witness import BrokenPromiseError
from waystation.model.offsets import Offset
from waystation.records.control import read_marker
from waystation.scheduling import book, index, mover, runs
from waystation.scheduling.checkpoint import Checkpoint
from waystation.scheduling.index import Index
from waystation.scheduling.keeping import Keeping
from waystation.scheduling.mover import Mover, Outcome, Send
from waystation.scheduling.records import Cancelled, Doubted
from waystation.scheduling.schedule import Schedule
from waystation.scheduling.wheel import TimingWheel

SEEDS = 150
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: Patch) -> None:
    monkeypatch.setattr(runs, "PAGE_ENTRIES", 3)
    monkeypatch.setattr(runs, "_PAGE_BYTES", 16 + 16 * 3)
    monkeypatch.setattr(index, "_MERGE_RUNS", 2)


def sends_before_the_decision_is_committed(patch: Patch) -> None:
    honest = Mover.decide

    def decide(self: Mover, *rest: Any) -> Any:
        decided = honest(self, *rest)
        self._begin(decided)
        return decided

    patch.setattr(Mover, "decide", decide)


def decides_before_it_has_read_its_log(patch: Patch) -> None:
    def begin(self: Schedule) -> bool:
        if self._wheel is not None and not self.mover.leads:
            self.mover.lead(self._epoch)
        return self._wheel is not None

    patch.setattr(Schedule, "_begin", begin)


def repeats_under_another_sequence(patch: Patch) -> None:
    honest = Mover._next

    def following(self: Mover, target: Any, lane: Any, *rest: Any) -> Any:
        ask = honest(self, target, lane, *rest)
        if isinstance(ask, Send) and not lane.is_clear:
            return ask._replace(batch=ask.batch._replace(sequence=lane.state.next_sequence))
        return ask

    patch.setattr(Mover, "_next", following)


def cancels_in_memory_only(patch: Patch) -> None:
    honest = Schedule._apply_decision

    def apply(self: Schedule, decision: Any, at: Offset) -> None:
        if not isinstance(decision, Cancelled):
            honest(self, decision, at)
        elif self._wheel is not None:
            self._wheel.discard((decision.due, decision.offset))

    patch.setattr(Schedule, "_apply_decision", apply)


def counts_aborted_transactions(patch: Patch) -> None:
    honest = read_marker

    def read(*given: Any) -> Any:
        marker = honest(*given)
        return marker and marker._replace(committed=True)

    patch.setattr(book, "read_marker", read)


def forgets_open_transactions_in_checkpoints(patch: Patch) -> None:
    honest = Schedule._state
    patch.setattr(Schedule, "_state", lambda self: honest(self)._replace(held={}))


def dates_a_checkpoint_when_it_is_written(patch: Patch) -> None:
    honest = Schedule._saving

    def saving(self: Schedule, state: Checkpoint) -> Callable[[], None]:
        return lambda: honest(self, state._replace(applied=self.applied))()

    patch.setattr(Schedule, "_saving", saving)


def takes_silence_for_a_no(patch: Patch) -> None:
    honest = mover._sent

    def sent(lane: Any, outcome: Outcome) -> bool:
        return honest(lane, Outcome.REFUSED if outcome is Outcome.UNCLEAR else outcome)

    patch.setattr(mover, "_sent", sent)


def looks_before_late_requests_are_shut_out(patch: Patch) -> None:
    honest = Mover.apply

    def apply(self: Mover, decision: Any) -> Any:
        items = honest(self, decision)
        if isinstance(decision, Doubted):
            self._lanes[decision.target].is_fenced = True
        return items

    patch.setattr(Mover, "apply", apply)


def trusts_the_target_for_ever(patch: Patch) -> None:
    patch.setattr(Mover, "_must_doubt", lambda _, lane, *rest: lane.is_refused)


def believes_answers_to_old_questions(patch: Patch) -> None:
    honest = Mover.answered

    def answered(self: Mover, token: Any, *rest: Any) -> None:
        lane = self._lanes.get(token.target)
        if lane is not None and self._epoch is not None:
            token = token._replace(number=lane.asked, leader_epoch=self._epoch)
        honest(self, token, *rest)

    patch.setattr(Mover, "answered", answered)


def goes_by_slots(patch: Patch) -> None:
    honest = TimingWheel.due
    patch.setattr(TimingWheel, "due", lambda self, now, limit: honest(self, now | 15, limit))


def orders_ties_by_arrival(patch: Patch) -> None:
    def ordered(self: TimingWheel, number: int) -> Any:
        return sorted(self._slots[number], key=lambda packed: packed >> 64)

    patch.setattr(TimingWheel, "_sorted", ordered)


def holds_what_lies_behind_the_edge(patch: Patch) -> None:
    honest = Schedule._add

    def add(self: Schedule, dues: Any) -> None:
        dues = list(dues)
        honest(self, dues)
        for due in dues:
            if self._wheel is not None:
                self._wheel.add(due)

    patch.setattr(Schedule, "_add", add)


def drops_what_takes_back_something_elsewhere(patch: Patch) -> None:
    honest = runs.summed
    patch.setattr(runs, "summed", lambda some: [one for one in honest(some) if not one[1] & 1])


def leaves_behind_what_comes_later(patch: Patch) -> None:
    honest = Index.write

    def write(self: Index) -> Any:
        yield from honest(self)
        start = max(run.start for run in self.runs) if self.runs else runs.BEGINNING
        for run in self.runs:
            run.start = start

    patch.setattr(Index, "write", write)


def cleans_away_what_a_restart_replays(patch: Patch) -> None:
    honest = Keeping.__init__

    def init(self: Keeping, start: Any, end: Any, _: Any) -> None:
        honest(self, start, end, end)

    patch.setattr(Keeping, "__init__", init)


def cleans_away_when_a_message_comes_next(patch: Patch) -> None:
    honest = Keeping.note

    def note(self: Keeping, recurring: Any, retimed: Any, marks: Any) -> None:
        honest(self, {}, {}, marks)
        self.keep((one.due, offset) for offset, one in [*recurring.items(), *retimed.items()])

    patch.setattr(Keeping, "note", note)


def forgets_what_is_under_way(patch: Patch) -> None:
    honest = Schedule._state

    def state(self: Schedule) -> Checkpoint:
        saved = honest(self)
        lanes = {at: lane._replace(last=None) for at, lane in saved.lanes.items()}
        return saved._replace(lanes=lanes)

    patch.setattr(Schedule, "_state", state)


BUGS = {
    sends_before_the_decision_is_committed: 0,
    decides_before_it_has_read_its_log: 0,
    repeats_under_another_sequence: 1,
    cancels_in_memory_only: 1,
    counts_aborted_transactions: 0,
    forgets_open_transactions_in_checkpoints: 1,
    dates_a_checkpoint_when_it_is_written: 0,
    takes_silence_for_a_no: 1,
    looks_before_late_requests_are_shut_out: 51,
    trusts_the_target_for_ever: 5,
    believes_answers_to_old_questions: 76,
    goes_by_slots: 8,
    orders_ties_by_arrival: 362,
    holds_what_lies_behind_the_edge: 0,
    drops_what_takes_back_something_elsewhere: 12,
    leaves_behind_what_comes_later: 2,
    cleans_away_what_a_restart_replays: 1,
    cleans_away_when_a_message_comes_next: 18,
    forgets_what_is_under_way: 14,
}
"""Each with the first seed that finds it, to spare the others: where rules change, so do seeds."""


def live_until_it_is_found(first: int) -> None:
    for seed in range(first, first + SEEDS):
        lived(seed)


@pytest.mark.parametrize(
    ("bug", "first"), BUGS.items(), ids=lambda one: getattr(one, "__name__", "")
)
def test_a_planted_bug_is_found(
    bug: Callable[[Patch], None], first: int, monkeypatch: Patch
) -> None:
    bug(monkeypatch)

    with pytest.raises(BrokenPromiseError):
        live_until_it_is_found(first)
