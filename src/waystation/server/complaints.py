"""What is told about clients that misbehave, without letting them fill the disk.

Each kind of event is written at most ten times per second; the next one that is written says
how many were left out.
"""

from typing import Any, Final

from waystation.runtime.clock import Clock
from waystation.telemetry.logs import Events

_PER_SECOND: Final = 10


class Complaints:
    """Warnings, rationed per event name."""

    __slots__ = ("_clock", "_events", "_kinds")

    def __init__(self, events: Events, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._kinds: dict[str, _Ration] = {}

    def __call__(self, event: str, **facts: Any) -> None:
        """Write ``event`` as a warning if there is room for it."""
        ration = self._kinds.setdefault(event, _Ration())
        left_out = ration.take(int(self._clock.monotonic()))
        if left_out is None:
            return
        if left_out:
            facts["left_out"] = left_out
        self._events.warning(event, **facts)


class _Ration:
    __slots__ = ("left_out", "second", "written")

    def __init__(self) -> None:
        self.second, self.written, self.left_out = -1, 0, 0

    def take(self, second: int) -> int | None:
        """How many were left out before this one; ``None`` if this one is left out too."""
        if second != self.second:
            self.second, self.written = second, 0
        if self.written == _PER_SECOND:
            self.left_out += 1
            return None
        self.written += 1
        left_out, self.left_out = self.left_out, 0
        return left_out
