"""The consumer: reads partitions, alone or with the other members of its group.

Messages are fetched ahead in the background (``fetcher.py``); ``poll`` and ``async for`` hand
them out.  The position of a partition moves with what was handed out, never with what was
fetched.  Within a partition messages come in order; between partitions there is no order, and
each gets its turn.

Without a group it reads what it is told, from where it is told.  With one it shares the topics
with the other members and goes on where the group has got to (``group.py``).
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from waystation.client.bootstrap import DEFAULT_BOOTSTRAP
from waystation.client.errors import ClosedError
from waystation.client.exactly_once import ExactReading, ReadProcessWrite
from waystation.client.feed import Feed
from waystation.client.fetcher import Fetcher
from waystation.client.group import Group
from waystation.client.group_offsets import CommittedOffset, committed_at
from waystation.client.handing_out import HandingOut
from waystation.client.listeners import Listener, Listeners
from waystation.client.message import Message
from waystation.client.offsets import EARLIEST, LATEST, OffsetAndTime, list_offsets
from waystation.client.options import ConsumerOptions, consumer_settings
from waystation.client.places import Places, Start, checked_start
from waystation.client.producer import Producer
from waystation.client.router import Router
from waystation.client.subscription import Subscription, Wanted
from waystation.client.transactor import GroupOffsets
from waystation.client.transport import Connect, connect_tcp
from waystation.model.errors import (
    InvalidGroupIdError,
    InvalidRequestError,
    WaystationError,
)
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset
from waystation.runtime.clock import Clock, SystemClock
from waystation.runtime.tasks import Tasks

if TYPE_CHECKING:
    from waystation.filters.selecting import Filter

__all__ = ["Consumer", "Start"]

_TURN = 256
_BLOCK = 100


class Consumer:
    """Reads messages; use it as ``async with Consumer("billing", ["orders"]) as consumer``.

    Options are keywords, documented in ``settings.py``.  Where it has no position, and its group
    none either, it begins at ``start`` or else where ``auto_offset_reset`` says.  Without a group,
    partitions that a topic gets later are read from their start.  Of what it reads it hands out
    the messages that the expression ``where`` means (docs/filters.md); the others count as read.
    """

    def __init__(
        self,
        group_id: str | None = None,
        topics: Wanted = (),
        *,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        start: Start | None = None,
        where: str | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        connect: Connect = connect_tcp,
        clock: Clock | None = None,
        chance: Random | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        if group_id is not None and not group_id:
            raise InvalidGroupIdError("the group has no name: give it one, or leave group_id away")
        self.settings, self._member_settings, connection = consumer_settings(options)
        self._is_exact = self._member_settings.delivery == "exactly-once"
        if self._is_exact and group_id is None:
            raise InvalidGroupIdError("delivery='exactly-once' needs a group: give it a group_id")
        if start is not None or group_id is None:
            start = checked_start(self.settings.auto_offset_reset if start is None else start)
        self._where = None if where is None else _filter(where)
        self._group_id = group_id
        self._first_topics = topics
        self._listeners = Listeners(on_assigned, on_revoked, on_lost)
        self._subscription = Subscription()
        self._clock = clock or SystemClock()
        self._router = Router(bootstrap, connection, connect=connect, chance=chance)
        self._places = Places(self._router, self.settings, start)
        self._fetcher: Fetcher | None = None
        self._group: Group | None = None
        self._handing: HandingOut | None = None
        self._exact: ExactReading | None = None
        self._block: deque[Message] = deque()
        self._tasks = Tasks()
        self._watching: asyncio.Task[None] | None = None
        self._handed_out = 0

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Reach the cluster and the topics; ``async with`` does this.

        The partitions of a group are assigned a little later, in the background.
        """
        if self._fetcher is None:
            await self._router.start()
            self._fetcher = Fetcher(self._router, self.settings, self._clock, self._where)
            self._router.on_change.append(self._find_new_partitions)
            self._group = self._new_group(self._fetcher)
            self._handing = HandingOut(self._router, self._fetcher, self._places, self._group)
            if self._is_exact and self._group is not None:
                self._exact = ExactReading(self._group, self._fetcher, self._handing, self._router)
            try:
                await self.subscribe(self._first_topics, *self._listeners)
            except BaseException:
                await self.close()
                raise
        return self

    async def close(self) -> None:
        """Commit what was handed out, where that is automatic; leave the group; stop fetching."""
        await self._close(processed=True)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close.  After an error, what is in hand does not count as processed."""
        await self._close(processed=error is None)

    # --- what to read -----------------------------------------------------------------------

    async def subscribe(
        self,
        topics: Wanted,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Read these topics, and only those, from now on: by name, or all that a pattern matches.

        A group shares them out among its members; the functions, plain or async, are told which
        partitions come and go.  Without a group all partitions are read, and those that were read
        before go on where they were.
        """
        fetcher = self._open()
        await self._subscription.want(topics, self._router)
        self._stop_watching()
        if self._group is not None:
            listeners = Listeners(on_assigned, on_revoked, on_lost)
            await self._group.subscribe(self._subscription, listeners)
        else:
            await self._read(self._partitions_wanted(), fetcher)
        if self._subscription.pattern is not None:
            watching = self._subscription.watch(self._router, self._topics_changed)
            self._watching = self._tasks.spawn(watching, "consumer-pattern")

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions, and only those, from now on.

        A group's offsets are used, but its members are not asked: whoever assigns by hand sees
        to it that nobody else reads the same.
        """
        await self._assign([TopicPartition(*where) for where in partitions])

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions being read."""
        return tuple(self._open().feeds)

    def position(self, partition: tuple[str, int]) -> Offset:
        """The offset of the next message that this partition hands out."""
        where = TopicPartition(*partition)
        waiting = (one.offset for one in self._block if (one.topic, one.partition) == where)
        return next(waiting, self._feed(where).position)

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Go on from ``offset``; whether the partition holds it shows at the next poll."""
        where = TopicPartition(*partition)
        self._open().seek(self._feed(where), Offset(offset))
        self._block = deque(one for one in self._block if (one.topic, one.partition) != where)
        if self._group is not None:
            self._group.progress.sought(where)

    async def seek_to(self, start: Start, *partitions: tuple[str, int]) -> None:
        """Go on from ``start`` in these partitions, or in all."""
        wanted = [TopicPartition(*where) for where in partitions] or list(self.assignment)
        placed = await self._places.of(wanted, checked_start(start))
        for where, offset in placed.items():
            self.seek(where, offset)

    # --- messages ---------------------------------------------------------------------------

    async def poll(self, timeout_ms: int = 1000, max_messages: int = 100) -> list[Message]:
        """Up to ``max_messages``; an empty list if none came within ``timeout_ms``.

        Whoever polls is done with what he was given before.  Raises what stands in the way of a
        partition; the others go on with the next poll.
        """
        self._check_inexact()
        await asyncio.sleep(0)  # whoever polls without a pause lets the fetches run too
        if self._block:
            return [self._of_block() for _ in range(min(max_messages, len(self._block)))]
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1_000
        return await self._hands().next(max_messages, deadline)

    def __aiter__(self) -> Self:
        self._check_inexact()
        return self

    async def __anext__(self) -> Message:
        """The next message, however long it takes."""
        self._handed_out += 1
        if self._handed_out % _TURN == 0:
            await asyncio.sleep(0)
        if self._block:
            return self._of_block()
        hands = self._hands()
        if self._group is None or not self._group.commits_first:
            (message,) = hands.at_once() or await hands.next(1, None)
            return message
        # One commit serves a block; what is left of it is given back when the consumer closes.
        self._block.extend(await hands.next(_BLOCK, None))
        return self._of_block()

    # --- the group's place ------------------------------------------------------------------

    async def commit(
        self, positions: Mapping[tuple[str, int], int | CommittedOffset] | None = None
    ) -> None:
        """Keep for the group what was handed out so far, or the given positions.

        A position is the next offset to read: one more than that of the last message processed.
        Raises if the group does not take it.
        """
        self._check_inexact()
        commits = self._in_group().commits
        if positions is None:
            await commits.commit_handed_out()
            return
        own = {self._feed(where).partition: committed_at(at) for where, at in positions.items()}
        await commits.commit(own)

    async def committed(
        self, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed, of these partitions or of those being read."""
        wanted = self.assignment if partitions is None else partitions
        listed = [TopicPartition(*where) for where in wanted]
        found = await self._in_group().commits.fetch(listed)
        return {where: found.get(where) for where in listed}

    # --- transactions -----------------------------------------------------------------------

    def transaction(
        self, producer: Producer, *, lasting_ms: int = 100, timeout_ms: int | None = 1000
    ) -> ReadProcessWrite:
        """Messages, what is made of them and the group's place, in one transaction of ``producer``.

        For ``delivery="exactly-once"``.  The block's messages come for ``lasting_ms`` from the
        first on, for which it waits up to ``timeout_ms``.
        """
        self._open()
        if self._exact is None:
            raise InvalidRequestError(
                "this consumer does not read in transactions: give it delivery='exactly-once'"
            )
        return ReadProcessWrite(producer, self._exact, lasting_ms, timeout_ms)

    def offsets_to_commit(
        self, positions: Mapping[tuple[str, int], int | CommittedOffset] | None = None
    ) -> GroupOffsets:
        """What ``Transaction.commit_offsets`` commits: all that was handed out, or positions."""
        self._check_inexact()
        group = self._in_group()
        if self._member_settings.auto_commit or group.commits_first:
            raise InvalidRequestError(
                f"group {group.group_id} commits by itself, whether the transaction does or not: "
                "give the consumer auto_commit=False, or delivery='exactly-once'"
            )
        if positions is not None:
            own = {self._feed(where).partition: committed_at(at) for where, at in positions.items()}
            return group.in_transaction(own)
        group.progress.finish()
        handed_out = group.progress.processed()
        return group.in_transaction(
            {where: CommittedOffset(at) for where, at in handed_out.items()}
        )

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
        found = await list_offsets(self._router, wanted, self._places.isolation_level)
        return {where: told if told.offset >= 0 else None for where, told in found.items()}

    async def partitions_of(self, topic: str) -> tuple[TopicPartition, ...]:
        """The partitions that ``topic`` has."""
        view = await self._router.topic(topic)
        return tuple(TopicPartition(topic, one.partition) for one in view.partitions)

    # --- behind the scenes ------------------------------------------------------------------

    async def _close(self, *, processed: bool) -> None:
        handing, self._handing = self._handing, None
        await self._tasks.aclose()
        if handing is not None:
            handing.close()
            self._router.on_change.remove(self._find_new_partitions)
            fetcher = self._open()  # still, for listeners may commit
            try:
                if self._group is not None:
                    self._give_back(fetcher)
                    await self._group.close(processed=processed)
            finally:
                self._fetcher = None
                await fetcher.close()
        await self._router.close()

    def _give_back(self, fetcher: Fetcher) -> None:
        """Messages of a block that were committed, and never handed out, are the group's again."""
        for message in reversed(self._block):
            feed = fetcher.feeds.get(TopicPartition(message.topic, message.partition))
            if feed is not None:
                feed.seek(message.offset)
        self._block.clear()

    def _new_group(self, fetcher: Fetcher) -> Group | None:
        if self._group_id is None:
            return None
        own = self._member_settings
        group = Group(self._group_id, self._router, fetcher, own, self._places, self._clock)
        group.start()
        return group

    async def _assign(self, wanted: list[TopicPartition]) -> None:
        fetcher = self._open()
        await self._subscription.want((), self._router)
        self._stop_watching()
        for topic in dict.fromkeys(where.topic for where in wanted):
            await self._router.topic(topic)
        if self._group is not None:
            await self._group.assign(wanted)
        else:
            await self._read(wanted, fetcher)

    async def _read(self, wanted: list[TopicPartition], fetcher: Fetcher) -> None:
        """Without a group: these partitions, and no others."""
        for where in [where for where in fetcher.feeds if where not in wanted]:
            fetcher.remove(where)
        # At once, without a position: the next look at the cluster must not take them for new.
        new = {where: fetcher.add(where) for where in wanted if where not in fetcher.feeds}
        try:
            placed = await self._places.first(list(new))
        except BaseException:
            for where, feed in new.items():
                if fetcher.feeds.get(where) is feed:
                    fetcher.remove(where)
            raise
        for where, feed in new.items():
            if fetcher.feeds.get(where) is feed:
                feed.seek(placed[where])
        fetcher.wake()

    def _partitions_wanted(self) -> list[TopicPartition]:
        found = []
        for topic in self._subscription.topics:
            view = self._router.view.topics.get(topic)
            if view is not None:
                found += [TopicPartition(topic, one.partition) for one in view.partitions]
        return found

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    def _topics_changed(self) -> None:
        if self._group is None:
            self._router.want_refresh()  # and then they are found as new partitions
        else:
            self._group.resubscribe()

    def _find_new_partitions(self) -> None:
        """Without a group, partitions that appear later are read from their start."""
        if self._group is not None or self._fetcher is None:
            return
        new = [one for one in self._partitions_wanted() if one not in self._fetcher.feeds]
        for where in new:
            self._fetcher.add(where)
        if new:
            self._tasks.spawn(self._begin_new(new), "consumer-new-partitions")

    async def _begin_new(self, partitions: list[TopicPartition]) -> None:
        try:
            await self.seek_to("earliest", *partitions)
        except WaystationError as error:
            for where in partitions:
                self._open().report(self._feed(where), error)

    async def _ends(
        self, partitions: Iterable[tuple[str, int]] | None, end: int
    ) -> dict[TopicPartition, Offset]:
        listed = self.assignment if partitions is None else partitions
        wanted = dict.fromkeys((TopicPartition(*where) for where in listed), end)
        found = await list_offsets(self._router, wanted, self._places.isolation_level)
        return {where: told.offset for where, told in found.items()}

    def _feed(self, partition: tuple[str, int]) -> Feed:
        feed = self._open().feeds.get(TopicPartition(*partition))
        if feed is None:
            why = "assign it first"
            if self._group is not None:
                why = "its group has not given it to this consumer, or not any more"
            raise InvalidRequestError(
                f"partition {TopicPartition(*partition)} is not being read: {why}"
            )
        return feed

    def _of_block(self) -> Message:
        if self._group is not None:
            self._group.went_away()  # just now, and not when the block began
        return self._block.popleft()

    def _check_inexact(self) -> None:
        if self._is_exact:
            raise InvalidRequestError(
                "delivery='exactly-once' reads and commits in transactions only: "
                "`async with consumer.transaction(producer) as transaction`"
            )

    def _hands(self) -> HandingOut:
        if self._handing is None:
            raise _not_open()
        return self._handing

    def _in_group(self) -> Group:
        self._open()
        if self._group is None:
            raise InvalidRequestError(
                "this consumer has no group to commit for: give it one, Consumer(group_id, ...), "
                "or keep positions yourself"
            )
        return self._group

    def _open(self) -> Fetcher:
        if self._fetcher is None:
            raise _not_open()
        return self._fetcher


def _filter(expression: str) -> "Filter":
    from waystation.filters.selecting import Filter  # most programs never need the compiler

    return Filter(expression)


def _not_open() -> ClosedError:
    return ClosedError("the consumer is not open: use `async with`, or await start()")
