"""Hands out what was fetched, when and as far as that is allowed.

Nothing is handed out while partitions change owners.  For ``at-most-once`` the group's place is
committed first: what could not be committed is not handed out, but fetched again.
"""

import asyncio
from collections.abc import Mapping

from waystation.client.errors import ClosedError, NoCommittedOffsetError, is_retriable
from waystation.client.fetcher import Fetcher
from waystation.client.group import Group
from waystation.client.message import Message
from waystation.client.places import Places
from waystation.client.router import Router
from waystation.model.errors import (
    FencedMemberEpochError,
    IllegalGenerationError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    UnknownMemberError,
    WaystationError,
)
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset

__all__ = ["HandingOut"]

_PASSING = (
    RebalanceInProgressError,
    UnknownMemberError,
    IllegalGenerationError,
    FencedMemberEpochError,
)
"""What keeps a commit from counting until the membership has mended itself."""


class HandingOut:
    """Between the fetched messages of one consumer and its application."""

    def __init__(
        self, router: Router, fetcher: Fetcher, places: Places, group: Group | None
    ) -> None:
        self._router, self._fetcher, self._places, self._group = router, fetcher, places, group
        self._closed = False

    def close(self) -> None:
        """Whoever waits for messages learns that none will come."""
        self._closed = True
        self._fetcher.arrived.set()

    def at_once(self) -> list[Message]:
        """One message, if nothing has to be waited for; else none.

        HOT: once per message of ``async for``, where a coroutine more costs as much as the rest
        (benchmarks/client/consumer.py).
        """
        fetcher, group = self._fetcher, self._group
        if fetcher.troubled or not fetcher.turns or self._closed:
            return []
        if group is None:
            return fetcher.take(1)[0]
        if group.commits_when_polled:
            return []
        group.progress.came_back()
        if group.is_troubled or group.holds_back:
            return []
        messages, before = fetcher.take(1)
        if messages:
            group.progress.hand_out(before)
            group.went_away()
        return messages

    async def next(self, limit: int, deadline: float | None) -> list[Message]:
        """Up to ``limit`` messages as soon as there are any; none if the deadline comes first."""
        group = self._group
        if group is None:
            return await self._wait(limit, deadline)
        await group.came_back()
        try:
            return await self._wait(limit, deadline)
        finally:
            group.went_away()

    async def more(self, limit: int, deadline: float) -> list[Message]:
        """As ``next``, but what was handed out before stays in hand.

        None also if partitions are to change owners: then whoever has some should be done soon.
        """
        group = self._group
        assert group is not None, "without a group nothing is in hand"
        if group.holds_back:
            return []
        try:
            return await self._wait(limit, deadline)
        finally:
            group.went_away()

    async def _wait(self, limit: int, deadline: float | None) -> list[Message]:
        arrived = self._fetcher.arrived
        while True:
            if self._closed:
                raise ClosedError("the consumer was closed")
            arrived.clear()
            if messages := await self._take(limit):
                return messages
            try:
                async with asyncio.timeout_at(deadline):
                    await arrived.wait()
            except TimeoutError:
                return []

    async def _take(self, limit: int) -> list[Message]:
        fetcher, group = self._fetcher, self._group
        if group is None:
            if fetcher.troubled:
                await self._mend()
            return fetcher.take(limit)[0]
        group.raise_trouble()
        if fetcher.troubled and not group.holds_back:
            await self._mend()
        if group.holds_back:
            return []
        # No await between the question and the answer: partitions must not move in between.
        messages, before = fetcher.take(limit)
        if messages:
            group.progress.hand_out(before)
            if group.commits_first and not await self._commit_first(group, before):
                return []
        return messages

    async def _commit_first(self, group: Group, before: Mapping[TopicPartition, Offset]) -> bool:
        """Commit what is about to be handed out; if that fails, it is not handed out at all."""
        try:
            await group.commits.commit_ahead()
        except BaseException as error:
            for where, offset in before.items():
                if where in self._fetcher.feeds:
                    self._fetcher.seek(self._fetcher.feeds[where], offset)
            group.progress.came_back()
            if not _passes(error):
                raise
            await asyncio.sleep(self._router.settings.retry_backoff_ms / 1_000)
            return False
        return True

    async def _mend(self) -> None:
        """Place feeds that have no position, or a wrong one; raise what cannot be mended."""
        troubled = self._fetcher.troubled
        lost, new = [], []
        for feed, trouble in list(troubled.items()):
            if isinstance(trouble, NoCommittedOffsetError):
                new.append(feed.partition)
            elif isinstance(trouble, OffsetOutOfRangeError) and self._places.mends:
                lost.append(feed.partition)
            else:
                del troubled[feed]
                self._fetcher.drained()
                raise trouble
        placed = await self._places.again(lost) | await self._places.uncommitted(new)
        for feed, trouble in list(troubled.items()):
            if feed.partition in placed:
                self._fetcher.seek(feed, placed[feed.partition])
            elif feed.partition in new:
                raise trouble


def _passes(error: BaseException) -> bool:
    return isinstance(error, _PASSING) or (
        isinstance(error, WaystationError) and is_retriable(error)
    )
