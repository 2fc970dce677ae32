"""Messages on their way out: of one partition, from an offset or a time on; or of one key.

A page ends at its limit, at its bytes, at the end of the log, or, with a filter, when enough was
looked at: ``next_offset`` is where to go on in any case, and ``end_offset`` says how far that is.
What is read is committed.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from waystation.client.feed import Feed
from waystation.client.message import Message
from waystation.client.offsets import EARLIEST, LATEST
from waystation.client.raw import Fetched, PartitionReader
from waystation.client.settings import ConsumerSettings
from waystation.client.timing import moment_ms
from waystation.filters.selecting import Filter
from waystation.gateway.finding import find_page, key_of
from waystation.gateway.payloads import StoredMessage, Values, shown
from waystation.gateway.problems import ProblemError, refusal
from waystation.gateway.routes import JSON, NDJSON, Call, Params, Reply, Route
from waystation.gateway.topics import Offset as OffsetField
from waystation.gateway.topics import Partition, Since, TopicName, Where
from waystation.gateway.turns import in_turns
from waystation.model.errors import (
    InvalidFilterError,
    InvalidRequestError,
    OffsetOutOfRangeError,
)
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset

if TYPE_CHECKING:
    from waystation.client.router import Router
    from waystation.gateway.clients import Clients

__all__ = ["READING", "Page", "filter_of", "moment_of", "read_page"]

_FETCH_BYTES: Final = 256 << 10
_BATCH_BYTES: Final = 64 << 20
_TAKE: Final = 100
_SCAN_BYTES: Final = 32 << 20
_HOLD_MS: Final = 10_000
_PAGE_BYTES: Final = 1 << 20
_SETTINGS: Final = ConsumerSettings(isolation="read_committed", fetch_max_wait_ms=0)


class ReadParams(Params, frozen=True):
    """Which messages."""

    topic: TopicName
    partition: (
        Annotated[Partition, Meta(description="May be left away if the topic has only one.")] | None
    ) = None
    offset: (
        Annotated[OffsetField, Meta(description="Begin there; at the oldest message if not given.")]
        | None
    ) = None
    since: Since | None = None
    key: (
        Annotated[
            str, Meta(description="Only messages of this key; the topic needs index.keys=true.")
        ]
        | None
    ) = None
    key_base64: Annotated[bytes, Meta(description="Instead of key: any bytes.")] | None = None
    after: (
        Annotated[OffsetField, Meta(description="Begin behind that message; instead of offset.")]
        | None
    ) = None
    where: Where | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100
    max_bytes: Annotated[
        int, Meta(ge=1, le=8 << 20, description="Keys and values together, about.")
    ] = _PAGE_BYTES
    wait_ms: Annotated[
        int, Meta(ge=0, le=60_000, description="Wait so long for the first message.")
    ] = 0
    values: Annotated[
        Values, Meta(description="How values are shown: what is not text, or not JSON, as base64.")
    ] = "text"


class Messages(msgspec.Struct, frozen=True):
    """A page of messages."""

    messages: list[StoredMessage]
    next_offset: int
    """Where to go on."""
    end_offset: int
    """Where what could be read ended."""


class Page(NamedTuple):
    """Messages of ``[offset, next_offset)``."""

    messages: list[Message]
    next_offset: Offset
    end_offset: Offset


async def read_messages(call: Call[ReadParams, None]) -> Messages | Reply:
    """Read a page of one partition."""
    wanted, clients = call.parameters, call.clients
    _check_one_beginning(wanted)
    key = key_of(wanted.key, wanted.key_base64)
    if key is not None:
        return await _found(call, key)
    chosen = None if wanted.where is None else filter_of(wanted.where)
    where = TopicPartition(wanted.topic, await _partition(clients, wanted))
    offset = await clients.promptly(wanted.topic, _beginning(clients, where, wanted))
    try:
        page = await read_page(
            clients,
            where,
            offset,
            limit=wanted.limit,
            max_bytes=wanted.max_bytes,
            wait_ms=wanted.wait_ms,
            chosen=chosen,
        )
    except OffsetOutOfRangeError:
        raise await _not_there(clients, where, wanted) from None
    return await _answer(call, page)


async def _not_there(clients: "Clients", where: TopicPartition, wanted: ReadParams) -> ProblemError:
    """What to tell of a beginning that the partition does not hold, or not any more."""
    admin = await clients.admin()
    start = (await admin.list_offsets({where: EARLIEST}))[where].offset
    end = (await admin.list_offsets({where: LATEST}))[where].offset
    field = next(
        (name for name in ("offset", "after") if getattr(wanted, name) is not None), "since"
    )
    return refusal(
        416,
        "offset-out-of-range",
        f"{field} {getattr(wanted, field)}: partition {where} can be read from {start} to {end}",
        field=field,
        remedy=f"leave {field} away to read from the oldest message on",
    )


async def _found(call: Call[ReadParams, None], key: bytes) -> Messages | Reply:
    """A page of one key, wherever Kafka's clients put its messages."""
    wanted = call.parameters
    for name in ("where", "since"):
        if getattr(wanted, name) is not None:
            raise refusal(
                400,
                "invalid-parameter",
                f"{name} and key exclude each other",
                field=name,
                remedy="leave one of them away; a key's messages are found without reading others",
            )
    await call.clients.topic(wanted.topic)
    page = await find_page(
        call.clients,
        wanted.topic,
        key,
        _given_offset(wanted) or 0,
        limit=wanted.limit,
        max_bytes=wanted.max_bytes,
        wait_ms=wanted.wait_ms,
        partition=wanted.partition,
    )
    return await _answer(call, Page(page.messages, page.next_offset, page.end))


async def _answer(call: Call[ReadParams, None], page: Page) -> Messages | Reply:
    show = partial(shown, values=call.parameters.values)
    messages = await in_turns(show, page.messages)
    if not call.accepts(NDJSON):
        return Messages(messages, page.next_offset, page.end_offset)
    headers = (
        (b"waystation-next-offset", b"%d" % page.next_offset),
        (b"waystation-end-offset", b"%d" % page.end_offset),
    )
    return Reply(msgspec.json.Encoder().encode_lines(messages), 200, NDJSON, headers)


async def read_page(
    clients: "Clients",
    where: TopicPartition,
    offset: Offset,
    *,
    limit: int = 100,
    max_bytes: int = _PAGE_BYTES,
    wait_ms: int = 0,
    chosen: Filter | None = None,
) -> Page:
    """Committed messages from ``offset`` on; waits for the first of them for ``wait_ms``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1_000
    filling = _Filling(Feed(where, _BATCH_BYTES, chosen), offset, limit, max_bytes)
    await clients.promptly(where.topic, filling.fill(await clients.router(), where))
    while filling.is_waiting and (left_s := deadline - loop.time()) > 0:
        held_ms = min(max(int(left_s * 1_000), 1), _HOLD_MS)
        settings = ConsumerSettings(isolation="read_committed", fetch_max_wait_ms=held_ms)
        async with clients.waiting() as router:
            waiting = filling.take_next(router, where, settings)
            await clients.promptly(where.topic, waiting, wait_ms=held_ms)
    return filling.page


class _Filling:
    """A page that is being filled."""

    def __init__(self, feed: Feed, offset: Offset, limit: int, max_bytes: int) -> None:
        self._feed, self._limit, self._left_bytes = feed, limit, max_bytes
        self._messages: list[Message] = []
        self._looked_bytes = 0
        self._end = offset
        feed.seek(offset)

    @property
    def fetch_at(self) -> Offset:
        return self._feed.fetch_at

    @property
    def is_waiting(self) -> bool:
        """Whether there was nothing for the page yet, and all there is was looked at."""
        return not self._messages and self._feed.fetch_at >= self._end

    @property
    def page(self) -> Page:
        return Page(self._messages, self._feed.position, self._end)

    async def fill(self, router: "Router", where: TopicPartition) -> None:
        """Take all that is there."""
        reader = await _opened(router, where, _SETTINGS)
        while await self.take(await reader.fetch(self.fetch_at, _FETCH_BYTES)):
            pass

    async def take_next(
        self, router: "Router", where: TopicPartition, settings: ConsumerSettings
    ) -> None:
        """Take what there is next, waiting for it as ``settings`` say."""
        reader = await _opened(router, where, settings)
        await self.take(await reader.fetch(self.fetch_at, _FETCH_BYTES))

    async def take(self, fetched: Fetched) -> bool:
        """Take what came; false once it is enough, or there is no more."""
        feed = self._feed
        self._end = min(fetched.high_watermark, fetched.last_stable_offset)
        self._looked_bytes += len(fetched.records)
        feed.add(fetched.records, fetched.aborted)
        while feed.has_messages and not self._is_full:
            self._take_some()
            await asyncio.sleep(0)
        return bool(fetched.batches) and not self._is_full and feed.fetch_at < self._end

    def _take_some(self) -> None:
        """What one turn of the loop is enough for; one by one, since none can be put back."""
        for _ in range(_TAKE):
            for message in self._feed.take(1):
                self._messages.append(message)
                self._left_bytes -= message.size
            if self._is_full or not self._feed.has_messages:
                return

    @property
    def _is_full(self) -> bool:
        return (
            len(self._messages) >= self._limit
            or self._left_bytes <= 0
            or self._looked_bytes >= _SCAN_BYTES
        )


async def _opened(
    router: "Router", where: TopicPartition, settings: ConsumerSettings
) -> PartitionReader:
    reader = PartitionReader(router, settings, where)
    await reader.open()
    return reader


async def _partition(clients: "Clients", wanted: ReadParams) -> int:
    count = len((await clients.topic(wanted.topic)).partitions)
    if wanted.partition is None and count > 1:
        count = len((await clients.topic_anew(wanted.topic)).partitions)
    if wanted.partition is None and count == 1:
        return 0
    if wanted.partition is None:
        raise refusal(
            400,
            "invalid-parameter",
            f"topic {wanted.topic} has {count} partitions",
            field="partition",
            remedy=f"name one, 0 to {count - 1}",
        )
    return wanted.partition


async def _beginning(clients: "Clients", where: TopicPartition, wanted: ReadParams) -> Offset:
    given = _given_offset(wanted)
    if given is not None:
        return given
    admin = await clients.admin()
    moment = EARLIEST if wanted.since is None else moment_of(wanted.since)
    found = (await admin.list_offsets({where: moment}))[where].offset
    if found >= 0:
        return found
    return (await admin.list_offsets({where: LATEST}, isolation="read_committed"))[where].offset


def _check_one_beginning(wanted: ReadParams) -> None:
    given = [name for name in ("offset", "after", "since") if getattr(wanted, name) is not None]
    if len(given) > 1:
        raise refusal(
            400,
            "invalid-parameter",
            f"{given[0]} and {given[1]} exclude each other",
            field=given[1],
            remedy="give one of them",
        )


def _given_offset(wanted: ReadParams) -> Offset | None:
    if wanted.after is not None:
        return Offset(min(wanted.after + 1, 2**63 - 1))
    return None if wanted.offset is None else Offset(wanted.offset)


def moment_of(text: str, name: str = "since") -> int:
    """A time in milliseconds since 1970, however parameter ``name`` was written."""
    try:
        moment = int(text) if text.isascii() and text.isdigit() else moment_ms(text, name)
        if moment >= 2**63:
            raise InvalidRequestError(f"{name} {text} is beyond all time")
    except (InvalidRequestError, ValueError) as error:
        raise refusal(
            400,
            "invalid-parameter",
            str(error),
            field=name,
            remedy="2030-01-31T09:00:00Z, or milliseconds since 1970",
        ) from None
    return moment


def filter_of(expression: str) -> Filter:
    """What an expression means; a problem if it means nothing."""
    try:
        return Filter(expression)
    except InvalidFilterError as error:
        raise refusal(
            400,
            "invalid-filter",
            str(error),
            field="where",
            remedy="an SQL condition over key, value.NAME, headers.NAME: docs/filters.md",
        ) from None


READING = [
    Route(
        method="GET",
        path="/v1/topics/{topic}/messages",
        summary="Read messages of a partition, or of a key",
        tag="messages",
        handler=read_messages,
        parameters=ReadParams,
        answer=Messages,
        answer_types=(JSON, NDJSON),
        errors=(409, 416, 504),
    ),
]
