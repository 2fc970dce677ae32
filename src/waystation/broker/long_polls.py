"""Every fetch that waits, grouped by the connection it came from.

When a connection ends its fetches are cancelled, so that a client which asks for a long wait
and leaves costs nothing from then on.  When the node stops all are answered with what there is.
"""

from collections.abc import Callable
from typing import Any, Protocol

from waystation.broker.fetching import Fetch

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
        self._groups: dict[int, dict[Fetch, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def of(self, owner: Owner) -> dict[Fetch, None]:
        """Where the owner's fetches are listed while they wait.

        HOT: once per fetch, which finds the group in the connection's own session.
        """
        group: dict[Fetch, None] | None = owner.session.get(_KEY)
        if group is None:
            group = owner.session[_KEY] = self._groups[id(owner)] = {}
            owner.when_closed(lambda: self._gone(owner))
        return group

    def answer_all(self) -> None:
        """End every long poll now, with what there is."""
        for group in list(self._groups.values()):
            for fetch in list(group):
                fetch.end_now()

    def _gone(self, owner: Owner) -> None:
        for fetch in list(self._groups.pop(id(owner))):
            fetch.cancel()
