"""The transactional ids of one node: each is for one transaction at a time, and used again.

Coordinators remember every transactional id for days, so that one per transaction would fill
their memory.  What becomes of a transaction can be asked for until its transactional id is used
again: that one is taken first which has been free for longest, and while there are not too many,
none that became free less than ``KEPT_MS`` ago.
"""

from collections import OrderedDict
from typing import Final

from waystation.gateway.problems import refusal
from waystation.gateway.transaction_ids import new_transactional_id
from waystation.model.offsets import Millis

__all__ = ["KEPT_MS", "Slots"]

KEPT_MS: Final = 600_000
_LATE_MS: Final = 10_000
"""How much later than it should a transaction may end, by clocks that differ."""


class Slots:
    """At most ``most`` transactional ids; owns no clock."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: OrderedDict[str, Millis] = OrderedDict()
        self._free: OrderedDict[str, Millis] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open) + len(self._free)

    @property
    def is_full(self) -> bool:
        """Whether every one has a transaction, as far as is known here."""
        return len(self._open) >= self._most

    def oldest(self, count: int) -> list[str]:
        """Those of the transactions that have been open for longest."""
        return [name for name, _ in zip(self._open, range(count), strict=False)]

    def take(self, now: Millis, expires_at: Millis) -> str:
        """A transactional id for a transaction that ends by itself at ``expires_at``."""
        self._expire(now)
        if self.is_full:
            raise refusal(
                503,
                "too-many-transactions",
                f"{self._most} transactions that were begun here are open",
                remedy="commit or abort some, or begin at another node",
            )
        name = self._next(now)
        self._open[name] = expires_at
        return name

    def ended(self, name: str, now: Millis) -> None:
        """Its transaction is over."""
        if self._open.pop(name, None) is not None:
            self._free[name] = now

    def _next(self, now: Millis) -> str:
        freed_at = next(iter(self._free.values()), None)
        if freed_at is not None and (freed_at + KEPT_MS <= now or len(self) >= self._most):
            return self._free.popitem(last=False)[0]
        return new_transactional_id()

    def _expire(self, now: Millis) -> None:
        overdue = [name for name, at in self._open.items() if at + _LATE_MS <= now]
        for name in overdue:
            self.ended(name, now)
