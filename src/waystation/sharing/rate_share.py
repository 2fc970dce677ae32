"""How much of a redrive's rate is one partition's.

An order is carried out by the leaders of several partitions, which share its rate evenly while all
of them have work.  What those leave that are done goes to the others, so that a single busy
partition gets all of it.  Two promises:

1. together they are never faster than the order says: who does not answer counts as busy, and one
   that is done only once nothing of what it last sent can still be counted against it;
2. whoever is done with an order stays so.
"""

from collections.abc import Iterable
from typing import Final

from waystation.sharing.redrive import RedriveOrder

_LOOK_EVERY_S: Final = 1.0


class RateShare:
    """The part of one partition; begun anew by each of its leaders."""

    __slots__ = ("_done", "_order", "_seen")

    def __init__(self, order: RedriveOrder) -> None:
        self._order = order
        self._seen: frozenset[int] = frozenset()
        self._done: frozenset[int] = frozenset()

    @property
    def rate(self) -> float:
        """Messages per second, now; 0 is as fast as it goes."""
        order = self._order
        if not order.together:
            return order.rate
        return order.total_rate / max(len(order.together) - len(self._done), 1)

    @property
    def look_every_s(self) -> float:
        """For how long a message counts that was sent at the lowest rate: then it is over."""
        order = self._order
        return max(_LOOK_EVERY_S, len(order.together) / order.total_rate)

    def others(self, own: int) -> list[int]:
        """Whom to ask whether they are done: none if nothing is to be had of them."""
        order = self._order
        if order.total_rate <= 0:
            return []
        return [one for one in order.together if one != own and one not in self._done]

    def heard(self, done: Iterable[int]) -> None:
        """These say that they are done; who said so the last time too leaves its part."""
        found = frozenset(done)
        self._done |= found & self._seen
        self._seen = found
