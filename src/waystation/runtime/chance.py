"""Where chance comes from.

Nothing below ``cli`` rolls dice but through a ``Chance`` that was handed in, so that a test or
a simulation can have the same luck twice.
"""

import secrets
from random import Random
from typing import Protocol
from uuid import UUID, uuid4


class Chance(Protocol):
    """Numbers that nobody foresees."""

    def new_id(self) -> UUID:
        """An id that nothing else has."""
        ...

    def below(self, limit: int) -> int:
        """A number in ``[0, limit)``."""
        ...


class SystemChance:
    """The operating system's own: ids that cannot be guessed."""

    __slots__ = ()

    def new_id(self) -> UUID:
        """A random UUID."""
        return uuid4()

    def below(self, limit: int) -> int:
        """A number in ``[0, limit)``."""
        return secrets.randbelow(limit)


class SeededChance:
    """The same luck for the same seed; for tests and simulations."""

    __slots__ = ("_random",)

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def new_id(self) -> UUID:
        """A UUID of version 4, as its seed has it."""
        return UUID(int=self._random.getrandbits(128), version=4)

    def below(self, limit: int) -> int:
        """A number in ``[0, limit)``."""
        return self._random.randrange(limit)
