"""Dead letters by seed: each is in its topic once, whatever is lost, late or repeated."""

from typing import Any

import pytest

from tests.simulation.dead_letter_life import Life
from tests.support.soak import count
from waystation.broker.outbound import Outbound
from waystation.testing.virtual_time import Schedule, virtual_loop

SEEDS = range(count(15, 2_000))


def live(seed: int) -> None:
    """One run from its seed."""
    schedule = Schedule()
    loop = virtual_loop(schedule)
    life = Life(seed, schedule)
    loop.run_until_complete(loop.create_task(life.run()))
    life.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_dead_letter_is_there_once(seed: int) -> None:
    live(seed)


def forgets_what_is_under_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outbound, "under_way", lambda self: set())


def sends_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    def work(self: Any) -> None:
        while self._deciding:
            self.mover.apply(self._deciding.popleft()[1])
        self._moves.work()

    patch.setattr(Outbound, "work", work)


def leaves_no_notes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outbound, "note", lambda self: self._leader.queue.touch())


def settles_what_was_withdrawn(patch: pytest.MonkeyPatch) -> None:
    whole = Outbound._append

    def append(self: Any, decision: Any) -> None:
        self._arrived(at for _, at in self.mover.last(decision.target)[0])
        whole(self, decision)

    patch.setattr(Outbound, "_append", append)


BUGS = (sends_before_it_is_stored, leaves_no_notes, settles_what_was_withdrawn)


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_would_be_noticed(bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)

    for seed in range(count(40, 200)):
        try:
            live(seed)
        except (AssertionError, TimeoutError):
            return
    pytest.fail("nobody noticed")
