"""The dead letters of a topic: which there are, which were sent back, and sending them back.

Messages are read by a consumer; the broker that leads a partition of the dead-letter topic is asked
which of them went back, or told to send them.  An order has an id: giving it again asks how it
goes, so that a command that lost its answer may be repeated.  What was sent back before is not
sent again, by whichever order.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from waystation.client.consumer import Consumer
from waystation.client.errors import NoSuchPartitionError, error_of
from waystation.client.message import Message as Consumed
from waystation.client.router import Router
from waystation.messages.cancel_redrive import CancelRedriveRequest, CancelRedriveResponse
from waystation.messages.describe_redrive import DescribeRedriveRequest, DescribeRedriveResponse
from waystation.messages.redrive_dead_letters import (
    NO_LIMIT,
    RedriveDeadLettersRequest,
    RedriveDeadLettersResponse,
    RedriveState,
)
from waystation.model.errors import InvalidRequestError, UnknownTopicError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.sharing.dead_letters import Origin, origin_of
from waystation.sharing.redrive import RUNNING
from waystation.sharing.states import Span
from waystation.wire.message import Message

__all__ = ["DeadLetter", "DeadLetters", "Redrive"]

R = TypeVar("R", bound=Message)
T = TypeVar("T")

_POLL_MS, _POLL_MESSAGES = 500, 1_000


class DeadLetter(NamedTuple):
    """A message of a dead-letter topic, and what it says of itself."""

    message: Consumed
    origin: Origin | None
    """``None`` if it says nothing: somebody else sent it there."""
    is_redriven: bool


class Redrive(NamedTuple):
    """How far an order got in one partition."""

    partition: int
    id: str
    state: str
    """``running``, ``done``, ``cancelled`` or ``failed``."""
    first: Offset
    end: Offset
    cursor: Offset
    moved: int
    refused: int
    strays: int
    problem: str
    begun_at: Millis
    ended_at: Millis

    @property
    def is_running(self) -> bool:
        """Whether there is more to do."""
        return self.state == RUNNING


class DeadLetters:
    """The dead letters of one topic; ``Admin.dead_letters(topic)`` makes one."""

    def __init__(
        self, router: Router, topic: str, reader: Callable[[str | None], Consumer]
    ) -> None:
        self._router = router
        self._reader = reader
        self.topic = topic

    # --- looking ----------------------------------------------------------------------------

    async def all(
        self,
        *,
        partition: int | None = None,
        first: int = 0,
        end: int | None = None,
        since: int | None = None,
        until: int | None = None,
        where: str | None = None,
        redriven: bool = False,
    ) -> AsyncIterator[DeadLetter]:
        """Those in the topic now, by partition and offset; sent back ones too with ``redriven``."""
        for number in await self.partitions(partition):
            spans = await self.redriven(number)
            place = TopicPartition(self.topic, number)
            async with self._reader(where) as consumer:
                async for message in _read(consumer, place, first, end):
                    timely = (since is None or message.timestamp >= since) and (
                        until is None or message.timestamp < until
                    )
                    went = _covers(spans, message.offset)
                    if timely and (redriven or not went):
                        yield DeadLetter(message, origin_of(message.headers), went)

    async def judged(self, partition: int, messages: Iterable[Consumed]) -> list[DeadLetter]:
        """What messages that somebody has read of a partition say of themselves."""
        spans = await self.redriven(partition)
        return [
            DeadLetter(one, origin_of(one.headers), _covers(spans, one.offset)) for one in messages
        ]

    async def get(self, partition: int, offset: int) -> DeadLetter:
        """One by its place."""
        found = self.all(partition=partition, first=offset, end=offset + 1, redriven=True)
        async for one in found:
            return one
        raise InvalidRequestError(
            f"there is no message at offset {offset} of {self.topic}-{partition}, or not any more"
        )

    async def redriven(self, partition: int) -> list[Span]:
        """The offsets of a partition whose dead letters were sent back."""
        spans: list[Span] = []
        request = DescribeRedriveRequest(topic=self.topic, partition=partition, limit=10_000)
        while request.first_offset != NO_LIMIT:
            told = await self._describe(partition, request)
            spans += [Span(Offset(s.first_offset), Offset(s.end_offset)) for s in told.redriven]
            request.first_offset = told.next_offset
        return spans

    async def exists(self) -> bool:
        """Whether the topic is there: brokers make it when the first message dies."""
        try:
            await self.partitions()
        except UnknownTopicError:
            return False
        return True

    async def partitions(self, only: int | None = None) -> list[int]:
        """The numbers of the topic's partitions, or ``only`` one of them."""

        async def attempt() -> list[int]:
            view = await self._router.look_up([self.topic])
            if refused := view.refused.get(self.topic):
                raise error_of(refused, f"topic {self.topic}")
            return [one.partition for one in view.topics[self.topic].partitions]

        every = await self._patiently(attempt)
        if only is not None and only not in every:
            raise NoSuchPartitionError(TopicPartition(self.topic, only), len(every))
        return every if only is None else [only]

    # --- sending back -----------------------------------------------------------------------

    async def redrive(
        self,
        redrive_id: str,
        *,
        partitions: Sequence[int] | None = None,
        first: int = 0,
        end: int | None = None,
        since: int | None = None,
        until: int | None = None,
        where: str = "",
        to: str = "",
        rate: float = 0.0,
    ) -> list[Redrive]:
        """Have dead letters sent back to where they came from, or ``to`` a topic.

        Returns once every partition has the order; ``progress`` says how it goes.  The ``rate``,
        in messages per second, is for all partitions together: what those do not need that are
        done goes to the others.
        """
        numbers = await self.partitions() if partitions is None else partitions
        orders = [
            RedriveDeadLettersRequest(
                redrive_id=redrive_id,
                topic=self.topic,
                partition=number,
                first_offset=first,
                end_offset=NO_LIMIT if end is None else end,
                since_ms=NO_LIMIT if since is None else since,
                until_ms=NO_LIMIT if until is None else until,
                where=where,
                to_topic=to,
                rate=rate / max(len(numbers), 1),
                total_rate=rate,
                together=list(numbers) if rate else [],
            )
            for number in numbers
        ]
        return [await self._order(one) for one in orders]

    async def progress(self, partitions: Iterable[int] | None = None) -> list[Redrive]:
        """How far the last order got, where there was one."""
        numbers = await self.partitions() if partitions is None else partitions
        found = []
        for number in numbers:
            request = DescribeRedriveRequest(topic=self.topic, partition=number, limit=1)
            told = await self._describe(number, request)
            if told.redrive.redrive_id:
                found.append(_redrive(number, told.redrive))
        return found

    async def cancel(self, redrive_id: str) -> list[Redrive]:
        """Stop an order everywhere; what went back by then stays."""
        return [
            await self._cancel(one.partition, redrive_id)
            for one in await self.progress()
            if one.id == redrive_id
        ]

    # --- behind the scenes ------------------------------------------------------------------

    async def _order(self, request: RedriveDeadLettersRequest) -> Redrive:
        async def attempt() -> Redrive:
            told = await self._ask(request.partition, request, RedriveDeadLettersResponse)
            self._check(request.partition, told.error_code, told.error_message)
            return _redrive(request.partition, told.redrive)

        return await self._patiently(attempt)

    async def _describe(
        self, partition: int, request: DescribeRedriveRequest
    ) -> DescribeRedriveResponse:
        async def attempt() -> DescribeRedriveResponse:
            told = await self._ask(partition, request, DescribeRedriveResponse)
            self._check(partition, told.error_code, told.error_message)
            return told

        return await self._patiently(attempt)

    async def _cancel(self, partition: int, redrive_id: str) -> Redrive:
        request = CancelRedriveRequest(redrive_id=redrive_id, topic=self.topic, partition=partition)

        async def attempt() -> Redrive:
            told = await self._ask(partition, request, CancelRedriveResponse)
            self._check(partition, told.error_code, told.error_message)
            return _redrive(partition, told.redrive)

        return await self._patiently(attempt)

    def _check(self, partition: int, code: int, said: str | None) -> None:
        if code:
            raise error_of(code, f"{self.topic}-{partition}", said)

    async def _ask(self, partition: int, request: Message, expect: type[R]) -> R:
        leader = await self._router.leader_of(TopicPartition(self.topic, partition))
        return await self._router.ask(self._router.to_node(leader), request, expect)

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._router.retrying(attempt, self._router.settings.metadata_timeout_ms)


async def _read(
    consumer: Consumer, place: TopicPartition, first: int, end: int | None
) -> AsyncIterator[Consumed]:
    await consumer.assign([place])
    start = (await consumer.beginning_offsets([place]))[place]
    stop = (await consumer.end_offsets([place]))[place]
    stop = stop if end is None else min(stop, Offset(end))
    consumer.seek(place, min(max(start, Offset(first)), max(stop, start)))
    while consumer.position(place) < stop:
        for message in await consumer.poll(_POLL_MS, _POLL_MESSAGES):
            if message.offset < stop:
                yield message


def _covers(spans: Sequence[Span], offset: int) -> bool:
    at = bisect_right(spans, offset, key=lambda span: span.first) - 1
    return at >= 0 and offset < spans[at].end


def _redrive(partition: int, told: RedriveState) -> Redrive:
    return Redrive(
        partition,
        told.redrive_id,
        told.state,
        Offset(told.first_offset),
        Offset(told.end_offset),
        Offset(told.cursor),
        told.moved,
        told.refused,
        told.strays,
        told.problem,
        Millis(told.begun_ms),
        Millis(told.ended_ms),
    )
