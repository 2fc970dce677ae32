"""Who wants to know when partitions come and go."""

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from waystation.model.ids import TopicPartition

__all__ = ["Listener", "Listeners"]

Listener = Callable[[list[TopicPartition]], Awaitable[None] | None]
"""A plain or async function of the partitions concerned."""


class Listeners(NamedTuple):
    """The application's functions.

    They run while ``poll`` waits and nothing is in hand, so that they may commit and seek.
    Whoever does not tell loss from revocation is told of both by ``on_revoked``.
    """

    on_assigned: Listener | None = None
    on_revoked: Listener | None = None
    on_lost: Listener | None = None

    async def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """These are read from now on; there may be none."""
        await _tell(self.on_assigned, partitions)

    async def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """These are given up next."""
        await _tell(self.on_revoked, partitions)

    async def lost(self, partitions: Iterable[TopicPartition]) -> None:
        """These may be others' already: nothing can be committed for them."""
        await _tell(self.on_lost or self.on_revoked, partitions)


async def _tell(listener: Listener | None, partitions: Iterable[TopicPartition]) -> None:
    if listener is not None:
        result = listener(sorted(partitions))
        if result is not None:
            await result
