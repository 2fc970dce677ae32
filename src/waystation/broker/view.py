"""The cluster as this broker sees it, kept up to date by watching the coordination store.

1. The image only moves forward, and everyone who acts on it sees one revision, never two.
2. A change is visible in ``image`` only after the broker has acted on it: partitions made,
   leaders changed, settings obeyed.  Who changes the cluster through ``change`` therefore finds
   it done here when the call returns.
3. When the store dropped changes that were not seen yet, the whole image is read again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from waystation.cluster.changes import Changes, in_batches
from waystation.cluster.image import ClusterImage
from waystation.coordination.store import CoordinationStore, LeaseId
from waystation.model.errors import CompactedError

T = TypeVar("T")
Act = Callable[[ClusterImage, ClusterImage], Awaitable[None]]
Decide = Callable[[ClusterImage], tuple[T, Iterable[Changes]]]


class ChangeLostError(Exception):
    """Somebody else changed the same items first: read again and decide again."""


class ClusterView:
    """Holds the newest image that this broker has acted on."""

    def __init__(self, store: CoordinationStore, act: Act) -> None:
        self._store = store
        self._act = act
        self._moved = asyncio.Condition()
        # One writer at a time: decisions about topics build on each other.
        self._writing = asyncio.Lock()
        self.image = ClusterImage()

    async def load(self) -> ClusterImage:
        """Read everything, without acting on it yet."""
        snapshot = await self._store.get("")
        self.image = ClusterImage.from_items(snapshot.items, snapshot.revision)
        return self.image

    async def follow(self) -> None:
        """Act on every change from now on, for as long as the store is open."""
        while True:
            watch = self._store.watch("", self.image.revision)
            try:
                async for change in watch:
                    await self._advance(self.image.apply(change))
                return
            except CompactedError:
                snapshot = await self._store.get("")
                await self._advance(ClusterImage.from_items(snapshot.items, snapshot.revision))
            finally:
                watch.close()

    async def reached(self, revision: int) -> None:
        """Wait until this broker has acted on ``revision``."""
        async with self._moved:
            await self._moved.wait_for(lambda: self.image.revision >= revision)

    async def change(self, decide: Decide[T], leases: Mapping[str, LeaseId] | None = None) -> T:
        """Decide on the newest image, write, and wait until this broker has acted on it.

        Decides again on a newer image for as long as others change the same items first.
        """
        async with self._writing:
            while True:
                answer, decisions = decide(self.image)
                try:
                    await self.reached(await self.write(decisions, leases))
                    return answer
                except ChangeLostError:
                    await self.reached((await self._store.get("cluster")).revision)

    async def write(
        self, decisions: Iterable[Changes], leases: Mapping[str, LeaseId] | None = None
    ) -> int:
        """Put decisions into the store; the revision they made, at least the present one."""
        revision = self.image.revision
        for step in in_batches(decisions):
            bound = {key: leases[key] for key in step.leased} if leases else {}
            outcome = await self._store.txn(step.compares, step.puts, step.deletes, leases=bound)
            if not outcome.succeeded:
                raise ChangeLostError
            revision = max(revision, outcome.revision)
        return revision

    async def _advance(self, image: ClusterImage) -> None:
        await self._act(self.image, image)
        async with self._moved:
            self.image = image
            self._moved.notify_all()
