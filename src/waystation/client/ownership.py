"""The partitions that a member owns, and what happens when they come and go.

Partitions move only at rest: while ``poll`` waits, or the application has nothing in hand.  While
they move nothing is handed out.  Promises:

1. what was processed of a partition is committed before it is given up, where that is automatic;
2. a partition is read from the committed offset, or from where the application said if there
   is none;
3. the application is told of each move once, after the commit and before the first message.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

from waystation.client.commits import Commits
from waystation.client.errors import NoCommittedOffsetError
from waystation.client.feed import Feed
from waystation.client.fetcher import Fetcher
from waystation.client.listeners import Listeners
from waystation.client.places import Places
from waystation.client.progress import Progress
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicPartition

__all__ = ["Ownership"]


class Ownership:
    """What one consumer owns of its group's partitions."""

    def __init__(
        self,
        group_id: str,
        fetcher: Fetcher,
        progress: Progress,
        commits: Commits,
        places: Places,
        *,
        auto_commit: bool,
        thrown: Callable[[Exception], None],
    ) -> None:
        """``thrown`` takes what a listener raised, for ``poll`` to raise it again."""
        self.listeners = Listeners()
        self._moving = self._halted = False
        self._group_id = group_id
        self._fetcher, self._progress, self._commits = fetcher, progress, commits
        self._places = places
        self._auto_commit = auto_commit
        self._thrown = thrown

    @property
    def moving(self) -> bool:
        """Whether nothing may be handed out at the moment."""
        return self._moving or self._halted

    @property
    def halted(self) -> bool:
        """Whether what is owned may be others' by now."""
        return self._halted

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """The partitions being read."""
        return tuple(self._fetcher.feeds)

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these too, from where the group has got to."""
        added = [where for where in partitions if where not in self._fetcher.feeds]
        async with self._moved():
            feeds = {where: self._fetcher.add(where) for where in added}
            await self._place(feeds)
            await self._tell(self.listeners.assigned, added)

    async def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Give these up in good order."""
        if going := [where for where in partitions if where in self._fetcher.feeds]:
            async with self._moved():
                if self._auto_commit:
                    await self._commits.commit_due()
                await self._tell(self.listeners.revoked, going)
                self._drop(going)

    def halt(self) -> None:
        """Others may have all of them by now: hand nothing more out before they are lost."""
        self._halted = True

    async def lose(self) -> None:
        """Give all of them up without a commit, for it would not count."""
        if going := self.owned:
            async with self._moved():
                await self._tell(self.listeners.lost, going)
                self._drop(going)
        self._halted = False

    # --- behind the scenes ----------------------------------------------------------------------

    @asynccontextmanager
    async def _moved(self) -> AsyncIterator[None]:
        await self._progress.at_rest()
        self._moving = True
        try:
            yield
        finally:
            self._moving = False
            self._fetcher.wake()
            self._fetcher.arrived.set()

    async def _place(self, feeds: dict[TopicPartition, Feed]) -> None:
        committed = await self._commits.fetch(feeds, require_stable=self._places.reads_committed)
        self._progress.committed({where: found.offset for where, found in committed.items()})
        for where, found in committed.items():
            feeds[where].seek(found.offset)
        unknown = [where for where in feeds if where not in committed]
        if unknown:
            await self._place_new(unknown)

    async def _place_new(self, partitions: list[TopicPartition]) -> None:
        """Begin where nothing was committed; what does not work here, ``poll`` tries and tells."""
        feeds = self._fetcher.feeds
        try:
            found = await self._places.uncommitted(partitions)
        except WaystationError:
            found = {}
        for where in partitions:
            if where in found:
                feeds[where].seek(found[where])
            else:
                self._fetcher.report(feeds[where], NoCommittedOffsetError(self._group_id, where))

    async def _tell(
        self,
        told: Callable[[Iterable[TopicPartition]], Awaitable[None]],
        partitions: Iterable[TopicPartition],
    ) -> None:
        try:
            await told(partitions)
        except Exception as error:  # the application's own code
            self._thrown(error)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for where in partitions:
            self._fetcher.remove(where)
        self._progress.forget(partitions)
