"""Whether a target is up, and what a failed delivery means for its message.

A receiver that is down fails every message, and none of them is to blame.  So failures are of two
kinds: a *refusal* is about the message (400, 409, 422, ...), anything else about the target (no
connection, no answer in time, 5xx, 429, 401, a redirect).

1. After so many failures of the target in a row the breaker opens: one request at a time, with
   pauses that double, until one is answered by something else than such a failure.
2. A message is given up only if the target says that it will never take it, or if the target was
   seen to take others: not because it was tried often while everything failed.  ``counts`` turns
   this off: then a message dies of the number of its deliveries alone.
3. While a target asks for patience (``Retry-After``) nothing is sent to it.
"""

from enum import Enum
from typing import Final

__all__ = ["Breaker", "Verdict", "verdict_of"]

OPENS_AFTER: Final = 5
_PAUSE_MS, _PAUSE_MOST_MS = 1_000, 60_000
_ABOUT_THE_TARGET: Final = frozenset((401, 403, 404, 407, 408, 421, 425, 426, 429))
_GONE: Final = 410


class Verdict(Enum):
    """What an answer says."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """The target is up and does not like this message."""
    NEVER = "never"
    """And will not like it later either."""
    DOWN = "down"
    """The target does not work, or not for us."""


def verdict_of(status: int | None) -> Verdict:
    """What an HTTP status says; ``None`` is no answer at all."""
    if status is None:
        return Verdict.DOWN
    if 200 <= status < 300:
        return Verdict.ACCEPTED
    if status == _GONE:
        return Verdict.NEVER
    if 400 <= status < 500 and status not in _ABOUT_THE_TARGET:
        return Verdict.REFUSED
    return Verdict.DOWN


class Breaker:
    """The breaker of one webhook on one node; owns no clock: ``now`` is in milliseconds."""

    __slots__ = ("_failures", "_patience_until", "_pause_ms", "_tries_at", "_was_up")

    def __init__(self) -> None:
        self._failures = 0
        self._pause_ms = 0
        self._tries_at = 0
        self._patience_until = 0
        self._was_up = False

    @property
    def is_open(self) -> bool:
        """Whether the target counts as down."""
        return self._failures >= OPENS_AFTER

    def waits_ms(self, now: int) -> int:
        """How long nothing may be sent."""
        until = max(self._patience_until, self._tries_at if self.is_open else 0)
        return max(until - now, 0)

    def may_send(self, now: int, concurrency: int, under_way: int) -> int:
        """How many requests may be begun, with so many under way."""
        if self.waits_ms(now):
            return 0
        return max((1 if self.is_open else concurrency) - under_way, 0)

    def may_give_up(
        self, verdict: Verdict, deliveries: int, most: int, *, counts: bool = False
    ) -> bool:
        """Whether a message that was delivered so often and failed goes to the dead letters."""
        if verdict is Verdict.NEVER:
            return True
        if deliveries < most:
            return False
        return counts or verdict is Verdict.REFUSED or (self._was_up and not self.is_open)

    def heard(self, now: int, verdict: Verdict, patience_ms: int = 0) -> None:
        """A request ended."""
        self._patience_until = max(self._patience_until, now + patience_ms)
        if verdict is not Verdict.DOWN:
            self._failures = self._pause_ms = 0
            self._was_up = True
            return
        self._failures += 1
        if self.is_open:
            self._pause_ms = min(max(2 * self._pause_ms, _PAUSE_MS), _PAUSE_MOST_MS)
            self._tries_at = now + self._pause_ms
