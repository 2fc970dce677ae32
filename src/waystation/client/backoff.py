"""How long to wait before trying again."""

from random import Random

__all__ = ["Backoff"]

_SPREAD = 0.2


class Backoff:
    """Doubles from the first wait to the longest, each spread by a fifth either way."""

    __slots__ = ("_chance", "_first_s", "_longest_s")

    def __init__(self, first_ms: int, longest_ms: int, chance: Random) -> None:
        self._first_s, self._longest_s = first_ms / 1_000, longest_ms / 1_000
        self._chance = chance

    def delay_s(self, failures: int) -> float:
        """The wait after ``failures`` in a row, at least one."""
        doubled = self._first_s * 2.0 ** min(failures - 1, 30)
        spread = self._chance.uniform(1 - _SPREAD, 1 + _SPREAD)
        return min(doubled, self._longest_s) * spread
