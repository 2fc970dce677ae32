"""The partitions that a member owns, and what happens when they come and go.

Partitions move only at rest: while ``poll`` waits, or the application has nothing in hand.  While
they move nothing is handed out.  Promises:

1. what was processed of a partition is committed before it is given up, where that is automatic;
2. a partition is read from the committed offset, or from where the application said if there
   is none;
3. the application is told of each move once, after the commit and before the first message;
4. whoever sees that a partition is owned, sees it after the application was told.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from waystation.client.commits import Commits
from waystation.client.errors import NoCommittedOffsetError
from waystation.client.fetcher import Fetcher
from waystation.client.listeners import Listeners
from waystation.client.places import Places
from waystation.client.progress import Progress
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset

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
            committed = await self._commits.fetch(
                added, require_stable=self._places.reads_committed
            )
            begins = await self._beginnings([one for one in added if one not in committed])
            # No await from here on until the listener runs: it is told before anyone looks.
            for where in added:
                self._add(where, committed[where].offset if where in committed else begins[where])
            self._progress.committed({one: found.offset for one, found in committed.items()})
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

    async def _beginnings(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, Offset | None]:
        """Where to begin where nothing was committed; ``None`` where that cannot be said."""
        found: dict[TopicPartition, Offset | None] = dict.fromkeys(partitions)
        if partitions:
            with suppress(WaystationError):
                found |= await self._places.uncommitted(partitions)
        return found

    def _add(self, where: TopicPartition, offset: Offset | None) -> None:
        """Read a partition; what does not work yet, ``poll`` tries and tells."""
        feed = self._fetcher.add(where)
        if offset is None:
            self._fetcher.report(feed, NoCommittedOffsetError(self._group_id, where))
        else:
            feed.seek(offset)

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
