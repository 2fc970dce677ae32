"""Stops a flood of dead letters: when nearly everything fails, the messages are not at fault.

The breaker counts what was accepted and what was given up, in slices of its window.  It opens
when the window holds enough given-up messages and they are too large a part of all.  While it is
open nothing is delivered, and nothing is given up: what would have been waits.  When its pause is
over a few messages are let through, one probe at a time; an accepted one closes it, a failed
one opens it again.

1. With fewer than ``least`` messages given up within a window it never opens.
2. While it is open, no message is given up.
"""

from collections import deque
from typing import Final, NamedTuple

from waystation.model.offsets import Millis

CLOSED: Final = "closed"
OPEN: Final = "open"
PROBING: Final = "probing"

_SLICES = 10


class BreakerRule(NamedTuple):
    """When to open, and for how long; a ``part`` of 0 turns the breaker off."""

    part: float = 0.0
    least: int = 20
    window_ms: int = 60_000
    pause_ms: int = 30_000


class Breaker:
    """The breaker of one queue; every method is told the rule, which may change live."""

    __slots__ = ("_accepted", "_failed", "_open_until", "_slices", "_wakes_at", "is_probing")

    def __init__(self) -> None:
        self._slices: deque[tuple[int, int, int]] = deque()
        self._accepted = self._failed = 0
        self._open_until: Millis | None = None
        self._wakes_at: Millis | None = None
        self.is_probing = False
        """Whether a probe is out, and no other message may go until its fate is known."""

    def state(self, now: Millis) -> str:
        """Whether messages are delivered."""
        if self._open_until is None:
            return CLOSED
        return OPEN if now < self._open_until else PROBING

    def open_until(self) -> Millis | None:
        """When the next probe may go; ``None`` while the breaker is closed."""
        return self._open_until

    def wakes_at(self) -> Millis | None:
        """When those who wait for messages have to be told that a probe may go."""
        return self._wakes_at

    def wake(self, now: Millis) -> bool:
        """Whether a probe may go since now: true once for each time the breaker opens."""
        if self._wakes_at is None or self._wakes_at > now:
            return False
        self._wakes_at = None
        return True

    def probe(self) -> None:
        """A probe is on its way."""
        self.is_probing = True

    def accepted(self, now: Millis, records: int, rule: BreakerRule) -> None:
        """Messages were processed: a probe that was closes the breaker."""
        if self._open_until is not None and self.state(now) == PROBING:
            self._open_until = self._wakes_at = None
            self.is_probing = False
            self._forget()
        self._note(now, records, 0, rule)

    def probe_failed(self, now: Millis, rule: BreakerRule) -> None:
        """The probe came to nothing: wait once more."""
        if self._open_until is not None:
            self._open(now, rule)

    def may_give_up(self, now: Millis, records: int, rule: BreakerRule) -> bool:
        """Whether messages may become dead letters; counts them, and opens if they are too many."""
        if rule.part <= 0:
            return True
        if self._open_until is not None:
            return False
        self._note(now, 0, records, rule)
        total = self._accepted + self._failed
        if self._failed < rule.least or self._failed < rule.part * total:
            return True
        self._open(now, rule)
        return False

    def _open(self, now: Millis, rule: BreakerRule) -> None:
        self._open_until = self._wakes_at = Millis(now + rule.pause_ms)
        self.is_probing = False
        self._forget()

    def _note(self, now: Millis, accepted: int, failed: int, rule: BreakerRule) -> None:
        if rule.part <= 0:
            return
        length_ms = max(rule.window_ms // _SLICES, 1)
        number = now // length_ms
        while self._slices and self._slices[0][0] <= number - _SLICES:
            _, old_accepted, old_failed = self._slices.popleft()
            self._accepted -= old_accepted
            self._failed -= old_failed
        if self._slices and self._slices[-1][0] == number:
            _, known_accepted, known_failed = self._slices.pop()
            self._slices.append((number, known_accepted + accepted, known_failed + failed))
        else:
            self._slices.append((number, accepted, failed))
        self._accepted += accepted
        self._failed += failed

    def _forget(self) -> None:
        self._slices.clear()
        self._accepted = self._failed = 0
