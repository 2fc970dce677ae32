"""The cluster as this broker sees it, kept up to date by watching the coordination store.

1. The image only moves forward, and everyone who acts on it sees one revision, never two.
2. A change is visible in ``image`` only after the broker has acted on it: partitions made,
   leaders changed, settings obeyed.  Who changes the cluster through ``change`` therefore finds
   it done here when the call returns.
3. When the store dropped changes that were not seen yet, the whole image is read again.
4. While the store is away the image stands still; it moves on when the store is back.  Only what
   others are known to lead since then is corrected (``believe``), until the store says so itself.
5. Acting may take long, when a topic with many records goes.  Who only decides need not wait for
   it: ``newest`` is what the store last told, acted on or not.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from waystation.cluster.changes import Changes, in_batches
from waystation.cluster.hearsay import Place, Word, Words, corrected, newer
from waystation.cluster.image import ClusterImage
from waystation.coordination.store import CoordinationStore, LeaseId
from waystation.model.errors import CompactedError, StoreUnavailableError
from waystation.telemetry.logs import get_logger

_events = get_logger("broker")

T = TypeVar("T")
Act = Callable[[ClusterImage, ClusterImage], Awaitable[None]]
Decide = Callable[[ClusterImage], tuple[T, Iterable[Changes]]]

_PAUSE_S = 0.2
_HEARD_WITHIN_S = 0.5


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
        self.image = self.newest = ClusterImage()
        self._ended = False
        self._words: dict[Place, Word] = {}
        self._retold = False

    async def load(self) -> ClusterImage:
        """Read everything, without acting on it yet: for a start, before ``follow``."""
        self.image = self.newest = await self.read()
        return self.image

    async def read(self) -> ClusterImage:
        """What the store says now, which this broker may not have acted on."""
        snapshot = await self._store.get("")
        return ClusterImage.from_items(snapshot.items, snapshot.revision)

    async def follow(self) -> None:
        """Act on every change from now on, for as long as the store is open."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._listen())
            both.create_task(self._keep_acting())

    async def _listen(self) -> None:
        while True:
            watch = self._store.watch("", self.newest.revision)
            try:
                async for change in watch:
                    await self._hear(self.newest.apply(change))
                await self._hear(self.newest, ended=True)
                return
            except CompactedError:
                await self._hear(await self._read_again())
            finally:
                watch.close()

    async def _hear(self, image: ClusterImage, *, ended: bool = False) -> None:
        async with self._moved:
            self.newest, self._ended = image, ended
            if self._words:
                self._words = newer(image, self._words)
            self._moved.notify_all()

    async def _keep_acting(self) -> None:
        """What came while this broker acted on something else is acted on at once."""
        while True:
            async with self._moved:
                await self._moved.wait_for(lambda: self._ended or self._behind)
            if not self._behind:
                return
            self._retold = False
            await self._advance(corrected(self.newest, self._words))

    @property
    def _behind(self) -> bool:
        return self._retold or self.newest.revision > self.image.revision

    async def believe(self, words: Words) -> None:
        """Correct the image by what other brokers say, if they know more than this one."""
        async with self._moved:
            for place, word in words.items():
                known = self._words.get(place)
                if known is None or word.epoch > known.epoch:
                    self._words[place] = word
                    self._retold = True
            self._moved.notify_all()

    async def _read_again(self) -> ClusterImage:
        while True:
            try:
                return await self.read()
            except StoreUnavailableError as error:
                _events.warning("cluster.not.read", reason=str(error))
                await asyncio.sleep(_PAUSE_S)

    async def moved(self, since: int) -> ClusterImage:
        """The image that this broker has acted on, once it is newer than revision ``since``."""
        await self.reached(since + 1)
        return self.image

    async def heard(self, since: int) -> ClusterImage:
        """The newest image, once it is newer than revision ``since``."""
        async with self._moved:
            await self._moved.wait_for(lambda: self.newest.revision > since)
        return self.newest

    async def reached(self, revision: int) -> None:
        """Wait until this broker has acted on ``revision``."""
        await self.until(lambda: self.image.revision >= revision)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until ``holds``, which is asked when an image was heard of, or acted on."""
        async with self._moved:
            await self._moved.wait_for(holds)

    async def change(self, decide: Decide[T], leases: Mapping[str, LeaseId] | None = None) -> T:
        """Decide on the newest image, write, and wait until this broker has acted on it.

        The newest is what the store has by now: who was told by another broker that something is
        done may ask this one for the next thing.  A broker that is slow to hear of it decides on
        what it knows; what it writes is compared in any case.  Decides again on a newer image for
        as long as others change the same items first.
        """
        async with self._writing:
            newest = (await self._store.get("cluster")).revision
            if newest > self.image.revision:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_HEARD_WITHIN_S):
                        await self.reached(newest)
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

    async def write_each(
        self, decisions: Sequence[Changes], still: Callable[[], Awaitable[bool]] | None = None
    ) -> list[Changes]:
        """Put decisions into the store that do not depend on each other; those that got there.

        They go in as few transactions as possible; where one is refused, halves of it are tried,
        so that one decision which came too late holds up no other.  ``still`` is asked first
        whether there is any use: what all of them compare may be what has changed.
        """
        written: list[Changes] = []
        waiting = [[*decisions]]
        while waiting:
            some, done = waiting.pop(0), 0
            for step in in_batches(some):
                outcome = await self._store.txn(step.compares, step.puts, step.deletes)
                if outcome.succeeded:
                    written += some[done : step.completes]
                    done = step.completes
                    continue
                if still is not None and not await still():
                    return written
                # Of a decision that is larger than a transaction, nothing more may follow.
                refused, rest = max(done + 1, step.completes), some[done:]
                batch = some[done:refused]
                middle = len(batch) // 2
                waiting += [half for half in (batch[:middle], batch[middle:]) if middle]
                waiting += [rest[len(batch) :]] if len(rest) > len(batch) else []
                break
        return written

    async def _advance(self, image: ClusterImage) -> None:
        await self._act(self.image, image)
        async with self._moved:
            self.image = image
            self._moved.notify_all()
