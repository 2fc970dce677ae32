"""Thousands of deadlines, nearly all of which are cancelled.

A long poll sets a deadline and is usually answered before it.  Deadlines are therefore coarse
and kept in slots of ``tick_s``: setting one is a dictionary insert, cancelling one is a delete,
and however many there are, the loop carries one timer, for the earliest slot.

1. A function never runs early, and at most one tick late unless the loop itself is.
2. Functions run in the order of their slots, within a slot in the order they were set.
3. One that raises is an event and stops no other.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from waystation.runtime.clock import Clock
from waystation.telemetry.logs import get_logger

_events = get_logger("runtime")

TICK_S: Final = 0.005
_NEVER: Final = 1 << 62


class Timer:
    """One deadline; ``cancel`` may be called at any time, also after it fired."""

    __slots__ = ("_slot", "run")

    def __init__(self, slot: dict["Timer", None], run: Callable[[], None]) -> None:
        self._slot = slot
        self.run = run

    def cancel(self) -> None:
        """Do not run; what the function held on to is free at once.

        Whoever set the deadline holds it and is held by its function: without letting go here,
        every cancelled one would wait for the garbage collector, which stops the loop.
        """
        self._slot.pop(self, None)
        self.run = _nothing


class Timers:
    """The deadlines of one loop."""

    __slots__ = ("_clock", "_due", "_loop", "_slots", "_tick_s", "_wake_at", "_wake_up")

    def __init__(
        self, clock: Clock, loop: asyncio.AbstractEventLoop | None = None, tick_s: float = TICK_S
    ) -> None:
        self._clock = clock
        self._loop = loop or asyncio.get_running_loop()
        self._tick_s = tick_s
        self._slots: dict[int, dict[Timer, None]] = {}
        self._due: list[int] = []
        self._wake_at = _NEVER
        self._wake_up: asyncio.TimerHandle | None = None

    def call_later(self, delay_s: float, run: Callable[[], None]) -> Timer:
        """Run ``run`` once ``delay_s`` have passed.

        HOT: once per long poll (benchmarks/runtime/timers.py).
        """
        tick = int((self._clock.monotonic() + delay_s) / self._tick_s) + 1
        slot = self._slots.get(tick)
        if slot is None:
            slot = self._open(tick)
        timer = Timer(slot, run)
        slot[timer] = None
        if tick < self._wake_at:
            self._schedule()
        return timer

    def now_s(self) -> float:
        """The time that deadlines are counted from."""
        return self._clock.monotonic()

    def run_due(self) -> None:
        """Run what is due by the clock; the loop calls this, and so may who moves the clock."""
        now_tick = int(self._clock.monotonic() / self._tick_s)
        while self._due and self._due[0] <= now_tick:
            slot = self._slots.pop(heappop(self._due))
            # A function may cancel a later one of its own slot: look again after each.
            while slot:
                timer = next(iter(slot))
                del slot[timer]
                _run(timer)
        self._schedule()

    def close(self) -> None:
        """Forget every deadline."""
        self._slots.clear()
        self._due.clear()
        self._schedule()

    def _open(self, tick: int) -> dict[Timer, None]:
        slot: dict[Timer, None] = {}
        self._slots[tick] = slot
        heappush(self._due, tick)
        return slot

    def _schedule(self) -> None:
        """Carry one loop timer, for the earliest slot that somebody still waits in."""
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        self._wake_at = _NEVER
        while self._due and not self._slots[self._due[0]]:
            del self._slots[heappop(self._due)]
        if self._due:
            self._wake_at = self._due[0]
            delay_s = self._wake_at * self._tick_s - self._clock.monotonic()
            self._wake_up = self._loop.call_later(max(0.0, delay_s), self.run_due)


def _nothing() -> None:
    """What a deadline does that fired or was cancelled."""


def _run(timer: Timer) -> None:
    run, timer.run = timer.run, _nothing
    try:
        run()
    except Exception as error:  # the outermost frame of a deadline
        _events.error("timer.failed", exc_info=error)
