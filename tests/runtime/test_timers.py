"""Deadlines are never early, in order, and cheap to call off."""

import asyncio
import weakref
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from waystation.runtime.clock import ManualClock, SystemClock
from waystation.runtime.timers import TICK_S, Timers


class Loop:
    """Counts the timers that are set on it and never runs one."""

    def __init__(self) -> None:
        self.carried = 0

    def call_later(self, delay_s: float, run: Callable[[], None]) -> "Loop":
        assert delay_s >= 0
        self.carried += 1
        return self

    def cancel(self) -> None:
        self.carried -= 1


def still() -> tuple[ManualClock, Loop, Timers]:
    clock, loop = ManualClock(), Loop()
    return clock, loop, Timers(clock, loop)  # type: ignore[arg-type]


async def test_a_deadline_passes_by_itself_on_a_running_loop() -> None:
    clock = SystemClock()
    timers = Timers(clock)
    fired = asyncio.get_running_loop().create_future()
    start = clock.monotonic()

    timers.call_later(0.02, lambda: fired.set_result(clock.monotonic() - start))

    assert await asyncio.wait_for(fired, 5) >= 0.02


def test_a_cancelled_deadline_never_runs_and_frees_what_it_held() -> None:
    clock, _, timers = still()

    class Held:
        def run(self) -> None:
            raise AssertionError("a cancelled deadline ran")

    held = Held()
    gone = weakref.ref(held)
    timer = timers.call_later(1, held.run)
    timer.cancel()
    del held, timer

    assert gone() is None
    clock.advance(2)
    timers.run_due()


def test_however_many_deadlines_the_loop_carries_one() -> None:
    clock, loop, timers = still()
    fired: list[int] = []
    for number in range(1_000):
        timers.call_later(10 - number * 0.01, lambda number=number: fired.append(number))

    assert loop.carried == 1

    clock.advance(11)
    timers.run_due()

    assert fired == list(reversed(range(1_000)))
    assert loop.carried == 0


def test_a_function_may_cancel_another_of_its_own_slot() -> None:
    clock, _, timers = still()
    ran = []
    timers.call_later(1, lambda: (ran.append("first"), second.cancel()))
    second = timers.call_later(1, lambda: ran.append("second"))
    clock.advance(2)
    timers.run_due()

    assert ran == ["first"]


def test_a_function_that_raises_stops_no_other() -> None:
    clock, _, timers = still()
    ran = []
    timers.call_later(1, lambda: {}["missing"])
    timers.call_later(1, lambda: ran.append("next"))
    clock.advance(2)
    timers.run_due()

    assert ran == ["next"]


def test_a_function_may_set_the_next_deadline() -> None:
    clock, _, timers = still()
    ran: list[float] = []

    def again() -> None:
        ran.append(clock.monotonic())
        timers.call_later(1, again)

    again()
    for _ in range(12):
        clock.advance(0.5)
        timers.run_due()

    assert len(ran) >= 4


def test_closing_forgets_every_deadline() -> None:
    clock, loop, timers = still()
    timers.call_later(1, lambda: {}["missing"])
    timers.close()

    assert loop.carried == 0
    clock.advance(2)
    timers.run_due()


@given(st.lists(st.floats(0, 3), max_size=50), st.lists(st.floats(0.001, 0.5), min_size=10))
def test_no_deadline_is_early_nor_more_than_a_tick_late(
    delays: list[float], steps: list[float]
) -> None:
    clock, _, timers = still()
    late: list[float] = []
    for delay in delays:
        timers.call_later(delay, lambda delay=delay: late.append(clock.monotonic() - delay))
    longest = 0.0
    for step in [*steps, 5.0]:
        clock.advance(step)
        longest = max(longest, step)
        timers.run_due()

    assert len(late) == len(delays)
    assert all(0 <= by <= TICK_S + longest + 1e-9 for by in late)
