"""What a consumer wants to read: topics by name, or all that a pattern matches.

Names are looked up once; one that does not exist is told to whoever subscribes.  A pattern is
matched against all topics but the cluster's own, again and again: topics that appear later join.
"""

import asyncio
from collections.abc import Callable, Iterable
from re import Pattern

from waystation.client.router import Router
from waystation.model.errors import WaystationError

__all__ = ["Subscription", "Wanted"]

Wanted = str | Iterable[str] | Pattern[str]


class Subscription:
    """The topics wanted now; ``topics`` changes when those that a pattern matches do."""

    def __init__(self) -> None:
        self.pattern: Pattern[str] | None = None
        self.topics: tuple[str, ...] = ()

    async def want(self, wanted: Wanted, router: Router) -> None:
        """Want these from now on, and nothing else; raises if one that is named is not there."""
        if isinstance(wanted, Pattern):
            topics = await _matching(wanted, router)
        else:
            topics = (wanted,) if isinstance(wanted, str) else tuple(dict.fromkeys(wanted))
        for name in topics:
            await router.topic(name)
        self.pattern = wanted if isinstance(wanted, Pattern) else None
        self.topics = topics

    @property
    def is_empty(self) -> bool:
        """Whether nothing is wanted, now or later."""
        return self.pattern is None and not self.topics

    async def watch(self, router: Router, changed: Callable[[], None]) -> None:
        """Look for topics that match, for as long as this runs; say when they are others."""
        assert self.pattern is not None, "names do not change"
        while True:
            await asyncio.sleep(router.settings.metadata_max_age_ms / 1_000)
            try:
                topics = await _matching(self.pattern, router)
            except WaystationError:
                continue  # the next look will tell
            if topics != self.topics:
                self.topics = topics
                changed()


async def _matching(pattern: Pattern[str], router: Router) -> tuple[str, ...]:
    topics = (await router.look_up(None)).topics
    names = [name for name, one in topics.items() if not one.internal and pattern.fullmatch(name)]
    for name in names:
        router.follow(name)
    return tuple(sorted(names))
