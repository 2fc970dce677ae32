"""Followers that want the messages of few keys, found by those keys.

A thousand followers with a key each would be asked about every message of a topic, though one of
them wants it.  Who has all it wants rests here, and is offered only what has one of its keys; what
it was not offered in between it does not want.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from waystation.filters.selecting import Filter

if TYPE_CHECKING:
    from waystation.gateway.push_tail import Follower

__all__ = ["Resting", "few_keys"]

_FEW: Final = 100


def few_keys(where: Filter | None) -> frozenset[bytes] | None:
    """The keys that a filter is about; ``None`` if there is no telling, or they are many."""
    if where is None or where.keys is None or len(where.keys) > _FEW:
        return None
    return where.keys


class Resting:
    """Those who follow one tail."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[bytes, set[Follower]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def add(self, follower: "Follower", keys: Iterable[bytes]) -> None:
        """Let somebody rest."""
        for key in keys:
            self._by_key.setdefault(key, set()).add(follower)

    def remove(self, follower: "Follower", keys: Iterable[bytes]) -> None:
        """Somebody rests no more."""
        for key in keys:
            those = self._by_key[key]
            those.remove(follower)
            if not those:
                del self._by_key[key]

    def wanting(self, keys: Iterable[bytes]) -> "set[Follower]":
        """Who wants something of these keys."""
        return {one for key in keys for one in self._by_key.get(key, ())}

    def all(self) -> "set[Follower]":
        """All of them."""
        return self.wanting(list(self._by_key))
