"""What time it is.

Nothing below ``cli`` asks the operating system for the time but through a ``Clock`` that was
handed in, so that a test or a simulation can be any time it likes.
"""

import time
from typing import Protocol

from waystation.model.offsets import Millis


class Clock(Protocol):
    """Wall time for records and people, monotonic time for how long something took."""

    def now(self) -> Millis:
        """Milliseconds since the epoch; may jump when an operator sets the clock."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never runs back."""
        ...


class SystemClock:
    """The operating system's clocks."""

    __slots__ = ()

    def now(self) -> Millis:
        """Milliseconds since the epoch."""
        return Millis(time.time_ns() // 1_000_000)

    def monotonic(self) -> float:
        """Seconds, on the same scale as an asyncio loop's ``time()``."""
        return time.monotonic()


class SteadyClock:
    """Wall time as it was when this was made, moved on by the monotonic clock.

    For deadlines that are remembered as points in time: an operator who sets the clock makes
    none of them come early or late.
    """

    __slots__ = ("_clock", "_from_monotonic_ms", "_from_now")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._from_now = clock.now()
        self._from_monotonic_ms = clock.monotonic() * 1_000

    def now(self) -> Millis:
        """Milliseconds since the epoch, give or take what the wall clock was set by since."""
        passed_ms = self._clock.monotonic() * 1_000 - self._from_monotonic_ms
        return Millis(self._from_now + int(passed_ms))

    def monotonic(self) -> float:
        """Seconds, on the scale of the clock underneath."""
        return self._clock.monotonic()


_SOME_DAY = Millis(1_700_000_000_000)


class ManualClock:
    """A clock that stands still until it is moved; for tests and simulations."""

    __slots__ = ("_monotonic", "_now")

    def __init__(self, now: Millis = _SOME_DAY) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> Millis:
        """The wall time it was moved to."""
        return self._now

    def monotonic(self) -> float:
        """Seconds it was moved since it was made."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass on both scales."""
        self._now = Millis(self._now + int(seconds * 1_000))
        self._monotonic += seconds
