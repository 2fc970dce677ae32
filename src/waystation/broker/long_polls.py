"""Every fetch that waits, grouped by the connection it came from.

When a connection ends its fetches are cancelled, so that a client which asks for a long wait
and leaves costs nothing from then on.  When the node stops all are answered with what there is.
"""

from collections.abc import Callable
from typing import Any, Protocol

from waystation.broker.fetching import Polls

_KEY = "long polls"


class Owner(Protocol):
    """A connection, as far as this file needs it."""

    session: dict[str, Any]

    def when_closed(self, run: Callable[[], None], /) -> None:
        """Have ``run`` called when the connection ends."""
        ...


class LongPolls:
    """All groups of a broker."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[int, Polls] = {}

    def __len__(self) -> int:
        return sum(len(polls.fetches) for polls in self._groups.values())

    def of(self, owner: Owner) -> Polls:
        """Where the owner's fetches are listed while they wait.

        HOT: once per fetch, which finds the group in the connection's own session.
        """
        polls: Polls | None = owner.session.get(_KEY)
        if polls is None:
            polls = owner.session[_KEY] = self._groups[id(owner)] = Polls()
            owner.when_closed(lambda: self._gone(owner))
        return polls

    def answer_all(self) -> None:
        """End every long poll now, with what there is."""
        for polls in list(self._groups.values()):
            for fetch in list(polls.fetches):
                fetch.end_now()

    def _gone(self, owner: Owner) -> None:
        for fetch in list(self._groups.pop(id(owner)).fetches):
            fetch.cancel()
