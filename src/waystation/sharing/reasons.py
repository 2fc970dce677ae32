"""Why consumers have rejected messages, until these are dead letters.

Kept in memory only: a leader that dies leaves dead letters that do not say why.  Only as many as
can be on their way are kept, the last ones.
"""

from collections.abc import Iterable
from typing import Final

from waystation.model.offsets import Offset

__all__ = ["Reasons"]

_MOST: Final = 2_000
_CHARACTERS: Final = 300


class Reasons:
    """What was said of the messages of one queue."""

    __slots__ = ("_by_offset",)

    def __init__(self) -> None:
        self._by_offset: dict[int, str] = {}

    def add(self, first: int, end: int, reason: str) -> None:
        """A consumer says why it rejects messages; a range may be no longer than what is kept."""
        for offset in range(first, min(end, first + _MOST)):
            self._by_offset.pop(offset, None)
            self._by_offset[offset] = reason[:_CHARACTERS]
        while len(self._by_offset) > _MOST:
            del self._by_offset[next(iter(self._by_offset))]

    def of(self, offset: Offset) -> str:
        """Why a message was rejected; empty if nobody said."""
        return self._by_offset.get(offset, "")

    def forget(self, offsets: Iterable[Offset]) -> None:
        """These are where they belong."""
        for offset in offsets:
            self._by_offset.pop(offset, None)
