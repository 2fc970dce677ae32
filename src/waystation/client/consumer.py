"""The consumer: reads partitions from wherever it is told to start, and goes on from there.

Messages are fetched ahead in the background (``fetcher.py``); ``poll`` and ``async for`` hand
them out.  The position of a partition moves with what was handed out, never with what was
fetched.  Within a partition messages come in order; between partitions there is no order, and
each gets its turn.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from random import Random
from types import TracebackType
from typing import Self, Unpack

from waystation.client.bootstrap import DEFAULT_BOOTSTRAP
from waystation.client.errors import ClosedError
from waystation.client.feed import Feed
from waystation.client.fetch import ISOLATION
from waystation.client.fetcher import Fetcher
from waystation.client.message import Message
from waystation.client.offsets import EARLIEST, LATEST, OffsetAndTime, list_offsets
from waystation.client.options import ConsumerOptions, consumer_settings
from waystation.client.router import Router
from waystation.client.transport import Connect, connect_tcp
from waystation.model.errors import (
    InvalidConfigError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnsupportedVersionError,
    WaystationError,
)
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset
from waystation.runtime.clock import Clock, SystemClock
from waystation.runtime.tasks import Tasks

__all__ = ["Consumer", "Start"]

Start = str | int | datetime | Mapping[TopicPartition, int]
"""Where to begin: ``"earliest"``, ``"latest"``, a time (as ms since 1970 or a datetime: the
first message at or after it), or an offset for each partition."""

_ENDS = {"earliest": EARLIEST, "latest": LATEST}
_TURN = 256


class Consumer:
    """Reads messages; use it as ``async with Consumer(topics=["orders"]) as consumer``.

    Options are keywords, documented in ``settings.py``.  Without ``start`` it begins where
    ``auto_offset_reset`` says; partitions that a topic gets later are read from their start.
    """

    def __init__(
        self,
        group_id: str | None = None,
        topics: str | Iterable[str] = (),
        *,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        start: Start | None = None,
        connect: Connect = connect_tcp,
        clock: Clock | None = None,
        chance: Random | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        if group_id is not None:
            raise UnsupportedVersionError(
                f"group {group_id!r}: consumer groups are not supported yet; leave group_id away "
                "and keep positions yourself"
            )
        self.settings, connection = consumer_settings(options)
        self._first_topics = (topics,) if isinstance(topics, str) else tuple(topics)
        self._subscribed: tuple[str, ...] = ()
        self._start = _checked_start(start, self.settings.auto_offset_reset)
        self._clock = clock or SystemClock()
        self._router = Router(bootstrap, connection, connect=connect, chance=chance)
        self._fetcher: Fetcher | None = None
        self._tasks = Tasks()
        self._handed_out = 0

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Reach the cluster and the topics; ``async with`` does this."""
        if self._fetcher is None:
            await self._router.start()
            self._fetcher = Fetcher(self._router, self.settings, self._clock)
            self._router.on_change.append(self._find_new_partitions)
            try:
                await self.subscribe(self._first_topics)
            except BaseException:
                await self.close()
                raise
        return self

    async def close(self) -> None:
        """Stop fetching; positions are not kept."""
        fetcher, self._fetcher = self._fetcher, None
        if fetcher is not None:
            self._router.on_change.remove(self._find_new_partitions)
            await fetcher.close()
            fetcher.arrived.set()  # whoever waits for messages learns that none will come
        await self._tasks.aclose()
        await self._router.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- what to read -----------------------------------------------------------------------

    async def subscribe(self, topics: str | Iterable[str]) -> None:
        """Read all partitions of ``topics``, and only those, from now on.

        Partitions that were read before go on where they were.
        """
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        partitions = []
        for name in names:
            view = await self._router.topic(name)
            partitions += [TopicPartition(name, one.partition) for one in view.partitions]
        await self.assign(partitions)
        self._subscribed = names

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions, and only those, from now on."""
        fetcher = self._open()
        wanted = [TopicPartition(*where) for where in partitions]
        self._subscribed = ()
        for where in [where for where in fetcher.feeds if where not in wanted]:
            fetcher.remove(where)
        new = [where for where in wanted if where not in fetcher.feeds]
        placed = await self._places(new, self._start)
        for where in new:
            self._add_feed(where).seek(placed[where])
        fetcher.wake()

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions being read."""
        return tuple(self._open().feeds)

    def position(self, partition: tuple[str, int]) -> Offset:
        """The offset of the next message that this partition hands out."""
        return self._feed(partition).position

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Go on from ``offset``; whether the partition holds it shows at the next poll."""
        self._feed(partition).seek(Offset(offset))
        self._open().wake()

    async def seek_to(self, start: Start, *partitions: tuple[str, int]) -> None:
        """Go on from ``start`` in these partitions, or in all."""
        wanted = [TopicPartition(*where) for where in partitions] or list(self.assignment)
        placed = await self._places(wanted, _checked_start(start, "error"))
        for where, offset in placed.items():
            self.seek(where, offset)

    # --- messages ---------------------------------------------------------------------------

    async def poll(self, timeout_ms: int = 1000, max_messages: int = 100) -> list[Message]:
        """Up to ``max_messages``; an empty list if none came within ``timeout_ms``.

        Raises what stands in the way of a partition; the others go on with the next poll.
        """
        await asyncio.sleep(0)  # whoever polls without a pause lets the fetches run too
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1_000
        while True:
            fetcher = self._open()
            fetcher.arrived.clear()
            if fetcher.troubled:
                await self._mend(fetcher)
            if messages := self._take(fetcher, max_messages):
                return messages
            try:
                async with asyncio.timeout_at(deadline):
                    await fetcher.arrived.wait()
            except TimeoutError:
                return []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """The next message, however long it takes."""
        self._handed_out += 1
        if self._handed_out % _TURN == 0:
            await asyncio.sleep(0)
        while True:
            fetcher = self._open()
            fetcher.arrived.clear()
            if fetcher.troubled:
                await self._mend(fetcher)
            if messages := self._take(fetcher, 1):
                return messages[0]
            await fetcher.arrived.wait()

    # --- offsets ----------------------------------------------------------------------------

    async def beginning_offsets(
        self, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, Offset]:
        """The first offset that each partition still holds."""
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(
        self, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, Offset]:
        """The offset that each partition's next message gets."""
        return await self._ends(partitions, LATEST)

    async def offsets_for_times(
        self, times: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTime | None]:
        """The first message at or after a time in ms, ``None`` where all are older."""
        wanted = {TopicPartition(*where): time for where, time in times.items()}
        found = await list_offsets(self._router, wanted, self._isolation_level)
        return {where: told if told.offset >= 0 else None for where, told in found.items()}

    async def partitions_of(self, topic: str) -> tuple[TopicPartition, ...]:
        """The partitions that ``topic`` has."""
        view = await self._router.topic(topic)
        return tuple(TopicPartition(topic, one.partition) for one in view.partitions)

    # --- behind the scenes ------------------------------------------------------------------

    def _take(self, fetcher: Fetcher, limit: int) -> list[Message]:
        """Messages from one feed after the other; a feed's turn lasts a batch."""
        messages: list[Message] = []
        turns = fetcher.turns
        while turns and len(messages) < limit:
            feed = turns.popleft()
            try:
                messages += feed.take(limit - len(messages))
            except WaystationError as error:
                fetcher.report(feed, error)  # raised by the next poll, after these messages
            if feed.in_batch:
                turns.appendleft(feed)
            elif feed.has_messages:
                turns.append(feed)
        fetcher.drained()
        return messages

    async def _mend(self, fetcher: Fetcher) -> None:
        """Move feeds that point outside their partition, and raise what cannot be mended."""
        policy = self.settings.auto_offset_reset
        lost = []
        while fetcher.troubled:
            feed, trouble = fetcher.troubled.popitem()
            if isinstance(trouble, OffsetOutOfRangeError) and policy != "error":
                lost.append(feed.partition)
            else:
                fetcher.drained()
                raise trouble
        for where, offset in (await self._places(lost, policy)).items():
            self.seek(where, offset)

    def _find_new_partitions(self) -> None:
        new = []
        for topic in self._subscribed:
            view = self._router.view.topics.get(topic)
            for one in view.partitions if view else ():
                where = TopicPartition(topic, one.partition)
                if where not in self._open().feeds:
                    self._add_feed(where)
                    new.append(where)
        if new:
            self._tasks.spawn(self._begin_new(new), "consumer-new-partitions")

    async def _begin_new(self, partitions: list[TopicPartition]) -> None:
        try:
            await self.seek_to("earliest", *partitions)
        except WaystationError as error:
            for where in partitions:
                self._open().report(self._feed(where), error)

    async def _places(
        self, partitions: Iterable[TopicPartition], start: Start
    ) -> dict[TopicPartition, Offset]:
        """The offset that ``start`` means in each partition."""
        placed, times = {}, {}
        for where in partitions:
            if isinstance(start, Mapping):
                if where not in start:
                    raise InvalidRequestError(f"start names no offset for partition {where}")
                placed[where] = Offset(start[where])
            else:
                times[where] = _time_of(start)
        found = await list_offsets(self._router, times, self._isolation_level)
        young = [where for where, told in found.items() if told.offset < 0]
        found |= await list_offsets(
            self._router, dict.fromkeys(young, LATEST), self._isolation_level
        )
        return placed | {where: told.offset for where, told in found.items()}

    async def _ends(
        self, partitions: Iterable[tuple[str, int]] | None, end: int
    ) -> dict[TopicPartition, Offset]:
        listed = self.assignment if partitions is None else partitions
        wanted = dict.fromkeys((TopicPartition(*where) for where in listed), end)
        found = await list_offsets(self._router, wanted, self._isolation_level)
        return {where: told.offset for where, told in found.items()}

    @property
    def _isolation_level(self) -> int:
        return ISOLATION[self.settings.isolation]

    def _add_feed(self, where: TopicPartition) -> Feed:
        feed = Feed(where, self.settings.batch_limit_bytes)
        self._open().feeds[where] = feed
        return feed

    def _feed(self, partition: tuple[str, int]) -> Feed:
        feed = self._open().feeds.get(TopicPartition(*partition))
        if feed is None:
            raise InvalidRequestError(
                f"partition {TopicPartition(*partition)} is not being read: assign it first"
            )
        return feed

    def _open(self) -> Fetcher:
        if self._fetcher is None:
            raise ClosedError("the consumer is not open: use `async with`, or await start()")
        return self._fetcher


def _checked_start(start: Start | None, policy: str) -> Start:
    if start is None:
        start = policy
    if isinstance(start, str) and start not in _ENDS:
        if start == "error":
            raise InvalidConfigError("auto_offset_reset is 'error': say where to start")
        raise InvalidConfigError(f"start is {start!r}, must be 'earliest', 'latest' or a time")
    return start


def _time_of(start: str | int | datetime) -> int:
    if isinstance(start, datetime):
        return int(start.timestamp() * 1_000)
    return _ENDS[start] if isinstance(start, str) else start
