"""Messages that wait for their time: list them, look at one, cancel, give another time.

Sending one is the producer's business (``Producer.send(..., deliver_at=...)``), or any other Kafka
client's.  All of this is asked of the broker that leads the partition in which the message waits,
and asked again while that one is being replaced.  Without an error, a cancelled message is never
delivered, and one with another time goes then, whatever crashes.
"""

import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from waystation.client.errors import error_of, is_retriable
from waystation.client.router import Router
from waystation.client.schedule_descriptions import (
    Identified,
    MaybeCancelledError,
    MessageId,
    Place,
    Scheduled,
    ScheduledMessage,
)
from waystation.client.timing import Moment, moment_ms
from waystation.messages.cancel_scheduled import CancelScheduledRequest, CancelScheduledResponse
from waystation.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from waystation.messages.describe_scheduled import (
    DescribeScheduledRequest,
    DescribeScheduledResponse,
)
from waystation.messages.list_scheduled import (
    NO_TIME,
    ListedMessage,
    ListScheduledRequest,
    ListScheduledResponse,
)
from waystation.messages.retime_scheduled import (
    RetimeScheduledRequest,
    RetimeScheduledResponse,
    RetimeWish,
)
from waystation.model.errors import ErrorCode, InvalidRequestError, WaystationError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.scheduling.errors import NotPendingError
from waystation.scheduling.topics import companion_of, target_of
from waystation.wire.message import Message

__all__ = ["Schedules"]

R = TypeVar("R", bound=Message)
T = TypeVar("T")
Named = str | Identified
Outcomes = dict[MessageId, WaystationError | None]
"""What became of each wish: ``None`` if it was granted."""
Results = list[tuple[int, str | None]]
"""Code and sentence of each, in the order of the request."""

_PAGE, _DETAILED_PAGE = 5_000, 500
_WISHES = 1_000
_TOPIC, _OPTION = 2, "schedule.enable"


class Schedules:
    """What waits for one topic; ``Admin.schedules(topic)`` makes one."""

    def __init__(self, router: Router, topic: str) -> None:
        """``topic`` is where messages are delivered; its companion's name does as well."""
        self._router = router
        self.topic = target_of(topic) or topic
        self.companion = companion_of(self.topic)

    # --- looking ----------------------------------------------------------------------------

    async def count(self) -> int:
        """How many messages wait for the topic."""
        waiting = 0
        for number in await self._partitions():
            request = ListScheduledRequest(topic=self.topic, partition=number, limit=1)
            waiting += (await self._page(request)).waiting
        return waiting

    async def count_partitions(self) -> int:
        """How many partitions messages wait in; raises if the topic keeps none for later."""
        return len(await self._partitions())

    async def pending(
        self,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        key: bytes | str | None = None,
        partition: int | None = None,
        after: Place | None = None,
        limit: int | None = None,
        details: bool = True,
    ) -> AsyncIterator[Scheduled]:
        """What is due in ``[start, end)``, the earliest first, page by page as it is asked for.

        ``after`` goes on behind a message that a list gave before.  Without ``details`` only ids
        and times are told, which is much less work for the broker.
        """
        numbers = await self._partitions() if partition is None else [partition]
        begin = Millis(0) if start is None else moment_ms(start, "start")
        until = NO_TIME if end is None else int(moment_ms(end, "end"))
        wanted = key.encode() if isinstance(key, str) else key
        size = _DETAILED_PAGE if details or wanted is not None else _PAGE
        lists = [
            self._listed(
                ListScheduledRequest(
                    topic=self.topic,
                    partition=number,
                    from_ms=due,
                    from_offset=offset,
                    until_ms=until,
                    limit=size if limit is None or wanted is not None else min(size, limit),
                    key=wanted,
                    details=details,
                )
            )
            for number in numbers
            for due, offset in [_beginning(number, begin, after)]
        ]
        given = 0
        async for found in _merged(lists):
            if limit is not None and given >= limit:
                return
            given += 1
            yield found

    async def get(self, message: Named) -> ScheduledMessage:
        """One message by its id; ``NotPendingError`` says why if it does not wait."""
        name = MessageId.of(message)
        request = DescribeScheduledRequest(
            topic=self.topic, partition=name.partition, offset=name.offset
        )

        async def attempt() -> DescribeScheduledResponse:
            told = await self._ask(name.partition, request, DescribeScheduledResponse)
            _raise_if(told.error_code, name, told.error_message)
            return told

        told = await self._patiently(attempt)
        return ScheduledMessage(
            self.topic,
            *name,
            Millis(told.due_ms),
            told.cron,
            told.zone,
            Millis(told.sent_ms),
            told.key,
            told.value,
            tuple((one.name, one.value) for one in told.headers),
        )

    # --- changing ---------------------------------------------------------------------------

    async def cancel(self, message: Named) -> None:
        """Let a message never be delivered; one that recurs, never again.

        ``NotPendingError`` says why if it cannot be called back any more.
        """
        _raise_first(await self.cancel_all([message]))

    async def cancel_all(self, messages: Iterable[Named]) -> Outcomes:
        """Cancel many; one that is refused spoils no other."""
        asked = dict.fromkeys(map(MessageId.of, messages))
        outcomes: Outcomes = {}
        for partition, names in _by_partition(asked).items():
            for some in _cut(names):
                outcomes.update(await self._cancel(partition, some))
        return {name: outcomes[name] for name in asked}

    async def cancel_pending(
        self,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        key: bytes | str | None = None,
        partition: int | None = None,
    ) -> AsyncIterator[Outcomes]:
        """Cancel all that ``pending`` lists, some at a time: what became of each of those.

        However many there are, a thousand are in memory.  What is sent meanwhile may be among them.
        """
        some: list[Scheduled] = []
        async for one in self.pending(
            start=start, end=end, key=key, partition=partition, details=key is not None
        ):
            some.append(one)
            if len(some) == _WISHES:
                yield await self.cancel_all(some)
                some = []
        if some:
            yield await self.cancel_all(some)

    async def retime(self, message: Named, to: Moment) -> None:
        """Let a message be due at another time; one that recurs, only the next time.

        ``InvalidRecordError`` says what is wrong with a time that cannot be meant.
        """
        _raise_first(await self.retime_all({MessageId.of(message): to}))

    async def retime_all(self, times: Mapping[MessageId, Moment]) -> Outcomes:
        """Give many another time; one that is refused spoils no other."""
        dues = {name: moment_ms(to) for name, to in times.items()}
        outcomes: Outcomes = {}
        for partition, names in _by_partition(dues).items():
            for some in _cut(names):
                outcomes.update(await self._retime(partition, {one: dues[one] for one in some}))
        return {name: outcomes[name] for name in dues}

    # --- behind the scenes ------------------------------------------------------------------

    async def _cancel(self, partition: int, names: list[MessageId]) -> Outcomes:
        async def ask(rest: list[MessageId]) -> Results:
            request = CancelScheduledRequest(
                topic=self.topic, partition=partition, offsets=[one.offset for one in rest]
            )
            told = await self._ask(partition, request, CancelScheduledResponse)
            _raise_if(told.error_code, self.companion, told.error_message)
            return [(one.error_code, one.error_message) for one in told.results]

        wishes = _Wishes(names, ask)
        await self._patiently(wishes.attempt)
        return {name: wishes.doubted(name) for name in names}

    async def _retime(self, partition: int, dues: dict[MessageId, Millis]) -> Outcomes:
        async def ask(rest: list[MessageId]) -> Results:
            asked = [RetimeWish(offset=one.offset, due_ms=dues[one]) for one in rest]
            request = RetimeScheduledRequest(topic=self.topic, partition=partition, wishes=asked)
            told = await self._ask(partition, request, RetimeScheduledResponse)
            _raise_if(told.error_code, self.companion, told.error_message)
            return [(one.error_code, one.error_message) for one in told.results]

        wishes = _Wishes(list(dues), ask)
        await self._patiently(wishes.attempt)
        return wishes.outcomes

    async def _listed(self, request: ListScheduledRequest) -> AsyncIterator[Scheduled]:
        while True:
            page = await self._page(request)
            for one in page.messages:
                yield _shown(self.topic, request.partition, one, details=request.details)
            if page.next_ms == NO_TIME:
                return
            request.from_ms, request.from_offset = page.next_ms, page.next_offset

    async def _page(self, request: ListScheduledRequest) -> ListScheduledResponse:
        async def attempt() -> ListScheduledResponse:
            told = await self._ask(request.partition, request, ListScheduledResponse)
            _raise_if(told.error_code, self.companion, told.error_message)
            return told

        return await self._patiently(attempt)

    async def _partitions(self) -> list[int]:
        """The companion's; brokers make it a moment after the topic allows messages to wait."""

        async def attempt() -> list[int]:
            view = await self._router.look_up([self.companion])
            refused = view.refused.get(self.companion, ErrorCode.NONE)
            if refused == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not await self._is_allowed():
                raise _not_schedulable(self.topic)
            if refused:
                raise error_of(refused, f"topic {self.companion}")
            return [one.partition for one in view.topics[self.companion].partitions]

        return await self._patiently(attempt)

    async def _is_allowed(self) -> bool:
        """Whether messages may wait for the topic, by its options.

        The controller knows of a topic that was made a moment ago; others may not yet.
        """
        resource = DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=self.topic, configuration_keys=[_OPTION]
        )
        request = DescribeConfigsRequest(resources=[resource])
        told = await self._router.ask(
            self._router.to_controller(), request, DescribeConfigsResponse
        )
        return any((one.name, one.value) == (_OPTION, "true") for one in told.results[0].configs)

    async def _ask(self, partition: int, request: Message, expect: type[R]) -> R:
        if self.companion not in self._router.view.topics:
            await self._partitions()  # who waits for a topic that is not there waits long
        leader = await self._router.leader_of(TopicPartition(self.companion, partition))
        return await self._router.ask(self._router.to_node(leader), request, expect)

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._router.retrying(attempt, self._router.settings.metadata_timeout_ms)


class _Wishes:
    """Wishes for messages of one partition, asked again until each has an answer."""

    def __init__(
        self, names: list[MessageId], ask: Callable[[list[MessageId]], Awaitable[Results]]
    ) -> None:
        self.outcomes: Outcomes = {}
        self._names, self._ask = names, ask
        self._unanswered: set[MessageId] = set()

    async def attempt(self) -> None:
        """Ask for what has no answer yet; raises while another attempt may bring one."""
        rest = [one for one in self._names if one not in self.outcomes]
        before, self._unanswered = self._unanswered, self._unanswered | set(rest)
        passing: WaystationError | None = None
        for name, (code, said) in zip(rest, await self._ask(rest), strict=True):
            error = _error(code, name, said) if code else None
            if error is not None and is_retriable(error):
                passing = error
                continue
            self.outcomes[name] = error
            if name not in before:
                self._unanswered.discard(name)
        if passing is not None:
            raise passing

    def doubted(self, name: MessageId) -> WaystationError | None:
        """The outcome; what is gone after an attempt without an answer may be gone by that."""
        error = self.outcomes[name]
        if name in self._unanswered and isinstance(error, NotPendingError):
            return MaybeCancelledError(str(name), error.why)
        return error


def _not_schedulable(topic: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"topic {topic} takes no scheduled messages, or does not exist: allow them with "
        f"`waystation topic alter {topic} --set schedule.enable=true`"
    )


async def _merged(lists: list[AsyncIterator[Scheduled]]) -> AsyncIterator[Scheduled]:
    """The lists as one, in the order of times, then of partitions."""
    heads: list[tuple[Place, int, Scheduled]] = []
    for number, each in enumerate(lists):
        first = await anext(each, None)
        if first is not None:
            heapq.heappush(heads, (first.place, number, first))
    while heads:
        _, number, found = heads[0]
        yield found
        following = await anext(lists[number], None)
        if following is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (following.place, number, following))


def _beginning(partition: int, start: Millis, after: Place | None) -> tuple[int, int]:
    """Where a partition's list begins, if the whole list goes on behind ``after``."""
    if after is None or after.due < start:
        return start, 0
    if partition == after.partition:
        return after.due, after.offset + 1
    return (after.due + 1, 0) if partition < after.partition else (after.due, 0)


def _shown(topic: str, partition: int, one: ListedMessage, *, details: bool) -> Scheduled:
    plain = Scheduled(topic, partition, Offset(one.offset), Millis(one.due_ms), one.cron, one.zone)
    if not details:
        return plain
    size = one.value_bytes if one.value_bytes >= 0 else None
    return plain._replace(sent=Millis(one.sent_ms), key=one.key, value_bytes=size)


def _by_partition(names: Iterable[MessageId]) -> dict[int, list[MessageId]]:
    found: dict[int, list[MessageId]] = {}
    for name in names:
        found.setdefault(name.partition, []).append(name)
    return found


def _cut(names: list[MessageId]) -> Iterable[list[MessageId]]:
    return (names[at : at + _WISHES] for at in range(0, len(names), _WISHES))


def _error(code: int, name: object, said: str | None) -> WaystationError:
    if code == ErrorCode.RESOURCE_NOT_FOUND:
        why = (said or "").removeprefix(f"{name} is not pending: ")
        return NotPendingError(str(name), why or "the broker does not say why")
    return error_of(
        code, f"message {name}" if isinstance(name, MessageId) else f"topic {name}", said
    )


def _raise_if(code: int, name: object, said: str | None) -> None:
    if code:
        raise _error(code, name, said)


def _raise_first(outcomes: Outcomes) -> None:
    for error in outcomes.values():
        if error is not None:
            raise error
