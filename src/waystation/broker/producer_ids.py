"""Producer ids, never given twice in the life of a cluster.

Ids come in blocks from the coordination store; a block that a crash left half used is not used
again.
"""

import asyncio

from waystation.broker.view import ClusterView
from waystation.cluster.changes import Changes
from waystation.cluster.image import ClusterImage
from waystation.cluster.membership import take_producer_ids
from waystation.model.ids import ProducerId


class ProducerIds:
    """The ids this broker may give out."""

    __slots__ = ("_left", "_lock", "_view")

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._lock = asyncio.Lock()
        self._left = iter(range(0))

    async def take(self) -> ProducerId:
        """An id that nobody had before."""
        async with self._lock:
            found = next(self._left, None)
            if found is None:
                self._left = iter(await self._view.change(_take_block))
                found = next(self._left)
            return ProducerId(found)


def _take_block(image: ClusterImage) -> tuple[range, list[Changes]]:
    block, changes = take_producer_ids(image)
    return block, [changes]
