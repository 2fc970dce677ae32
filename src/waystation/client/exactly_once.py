"""Read, process, write: each message has its effect exactly once, whatever crashes.

    async with consumer.transaction(producer) as transaction:
        async for message in transaction:
            transaction.submit("invoices", invoice_of(message))

Messages, what is made of them and how far the group has got are one transaction.  Promises:

1. offsets are committed in the transaction that holds the results, and nowhere else;
2. a message is in hand until its transaction has ended, so that its partition does not change
   owners meanwhile; if the group gave it away all the same, the transaction is aborted;
3. after an abort the same messages come again, and after a commit whose outcome is not known
   reading goes on where the group is found to be;
4. what passes by itself (a rebalance, a broker that was away) is not raised: the block is aborted
   and whoever loops gets the messages again.  What the application raises is raised, after the
   abort.

A block ends by itself some time after its first message; a message that was not taken from it
belongs to the next one.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from waystation.client.errors import is_retriable
from waystation.client.fetcher import Fetcher
from waystation.client.group import Group
from waystation.client.group_offsets import CommittedOffset
from waystation.client.handing_out import HandingOut
from waystation.client.message import Message
from waystation.client.router import Router
from waystation.client.standing import Phase
from waystation.client.transaction import Transaction
from waystation.client.transactor import PreparedTransaction
from waystation.model.errors import (
    FencedMemberEpochError,
    IllegalGenerationError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    TransactionAbortableError,
    UnknownMemberError,
    WaystationError,
)
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset
from waystation.telemetry.logs import get_logger

if TYPE_CHECKING:
    from waystation.client.producer import Producer

__all__ = ["ExactReading", "ReadProcessWrite"]

_events = get_logger("client")

_BLOCK = 500
_PART_OF_TIMEOUT = 3
_PASSING = (
    FencedMemberEpochError,
    IllegalGenerationError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    TransactionAbortableError,
    UnknownMemberError,
)


class ExactReading:
    """What one consumer has read and not committed yet, and where to go back to."""

    def __init__(self, group: Group, fetcher: Fetcher, hands: HandingOut, router: Router) -> None:
        self.group = group
        self._fetcher, self._hands, self._router = fetcher, hands, router
        self._before: dict[TopicPartition, Offset] = {}
        self._doubtful: dict[TopicPartition, Offset] = {}
        self._failures = 0

    async def begin(self) -> None:
        """Make sure of the positions before anything is read on."""
        if doubtful := [one for one in self._doubtful if one in self._fetcher.feeds]:
            found = await self.group.commits.fetch(doubtful, require_stable=True)
            for where in doubtful:
                known = found.get(where)
                self._seek(where, self._doubtful[where] if known is None else known.offset)
        self._doubtful.clear()

    async def first(self, deadline: float | None) -> list[Message]:
        """Messages, as soon as there are any; none if the deadline comes first."""
        return self._noted(await self._hands.next(_BLOCK, deadline))

    async def more(self, deadline: float) -> list[Message]:
        """More of them; none once the block should end."""
        return self._noted(await self._hands.more(_BLOCK, deadline))

    def give_back(self, messages: Mapping[TopicPartition, Offset]) -> None:
        """Messages from these offsets on were read, but not taken by the application."""
        for where, offset in messages.items():
            self._seek(where, offset)

    def positions(self) -> dict[TopicPartition, Offset]:
        """How far the partitions were read from which the block has messages.

        Raises if one of them is not read any more: its messages would come again to another.
        """
        feeds = self._fetcher.feeds
        for where in self._before:
            if where not in feeds:
                raise UnknownMemberError(
                    f"{where} was given up in the middle of the block that has messages of it"
                )
        return {where: feeds[where].position for where in self._before}

    def committed(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """The block has had its effect."""
        self.group.progress.committed(offsets)
        self._failures = 0
        self._done()

    def take_back(self) -> None:
        """The block had no effect: its messages come again."""
        for where, offset in self._before.items():
            self._seek(where, offset)
        self._done()

    def doubt(self) -> None:
        """Whether the block has had its effect, the group will tell."""
        self._doubtful |= self._before
        self._done()

    async def pause(self) -> None:
        """Wait a little before the same is tried again."""
        self._failures += 1
        await asyncio.sleep(self._router.backoff.delay_s(self._failures))

    def _noted(self, messages: list[Message]) -> list[Message]:
        for message in messages:
            self._before.setdefault(
                TopicPartition(message.topic, message.partition), message.offset
            )
        return messages

    def _seek(self, where: TopicPartition, offset: Offset) -> None:
        feed = self._fetcher.feeds.get(where)
        if feed is not None:
            self._fetcher.seek(feed, offset)

    def _done(self) -> None:
        """Nothing is in hand any more: partitions may change owners."""
        self._before.clear()
        self.group.progress.came_back()
        self.group.went_away()


class ReadProcessWrite(Transaction):
    """One block; ``Consumer.transaction`` makes it."""

    def __init__(
        self, producer: "Producer", reading: ExactReading, lasting_ms: int, timeout_ms: int | None
    ) -> None:
        super().__init__(producer, producer.transactor)
        self._reading = reading
        self._lasting_s = lasting_ms / 1_000
        self._longest_s = producer.settings.transaction_timeout_ms / 1_000 / _PART_OF_TIMEOUT
        self._timeout_ms = timeout_ms
        self._waiting: deque[Message] = deque()
        self._began_at: float | None = None

    async def __aenter__(self) -> Self:
        await self._reading.begin()
        return await super().__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Commit with the offsets, or abort and go back; true for what passes by itself."""
        self._give_back()
        cause = self._transactor.standing.cause
        if error is not None or not self._is_open:
            await super().__aexit__(kind, error, trace)
            self._reading.take_back()
            failed = isinstance(error, WaystationError) and cause is not None
            return failed and await self._repeats(cause)
        try:
            await self._commit_all()
        except TransactionAbortableError as refused:
            self._reading.take_back()
            if not await self._repeats(refused.__cause__):
                raise
        except BaseException:
            self._reading.doubt()
            raise
        return True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """The block's next message."""
        self._check_open()
        if self._waiting:
            if self._lasts_s() < self._longest_s:
                return self._waiting.popleft()
            raise StopAsyncIteration
        self._waiting.extend(await self._read())
        if not self._waiting:
            raise StopAsyncIteration
        return self._waiting.popleft()

    async def prepare(self) -> PreparedTransaction:
        """First phase of two, offsets included; the next block begins once it has ended."""
        self._give_back()
        await self._commit_offsets()
        prepared = await super().prepare()
        self._reading.doubt()
        return prepared

    # --- behind the scenes ------------------------------------------------------------------

    async def _read(self) -> list[Message]:
        loop = asyncio.get_running_loop()
        if self._began_at is not None:
            return await self._reading.more(self._began_at + self._lasting_s)
        timeout_s = None if self._timeout_ms is None else loop.time() + self._timeout_ms / 1_000
        messages = await self._reading.first(timeout_s)
        if messages:
            self._began_at = loop.time()
        return messages

    def _lasts_s(self) -> float:
        return asyncio.get_running_loop().time() - (self._began_at or 0.0)

    def _give_back(self) -> None:
        """What was not taken belongs to the next block."""
        unread: dict[TopicPartition, Offset] = {}
        for message in self._waiting:
            unread.setdefault(TopicPartition(message.topic, message.partition), message.offset)
        self._reading.give_back(unread)
        self._waiting.clear()

    async def _commit_all(self) -> None:
        """Records and offsets side by side, then the transaction."""
        try:
            reached = await self._commit_offsets()
        except BaseException as error:
            await super().__aexit__(type(error), error, None)
            raise
        await super().__aexit__(None, None, None)
        self._reading.committed(reached)

    async def _commit_offsets(self) -> dict[TopicPartition, Offset]:
        """How far the block's messages reach, kept for the group if the transaction commits."""
        try:
            reached = self._reading.positions()
        except UnknownMemberError as error:
            self._transactor.failed(error)
            raise self._transactor.standing.abortable(error) from error
        offsets = {where: CommittedOffset(offset) for where, offset in reached.items()}
        self._transactor.hurry()
        await self._transactor.commit_offsets(self._reading.group.in_transaction(offsets))
        return reached

    async def _repeats(self, cause: BaseException | None) -> bool:
        """Whether the block failed by something that passes; then wait a little."""
        transactor = self._transactor
        if transactor.standing.phase is Phase.DEAD or not _passes(cause):
            return False
        _events.info(
            "transaction.repeated", transactional_id=transactor.transactional_id, cause=str(cause)
        )
        await self._reading.pause()
        return True


def _passes(cause: BaseException | None) -> bool:
    return cause is None or (
        isinstance(cause, WaystationError) and (isinstance(cause, _PASSING) or is_retriable(cause))
    )
