"""Messages without end on their way out: NDJSON, written as it is read and as it is taken.

What is sent is what was there when the call came: each partition up to where it then ended, one
after the other.  Whoever wants what comes later is pushed to (``push.py``).  A caller that is
slow holds its own stream up, and costs one piece of it.  What ends before its time is cut off, so
that nobody takes a part for the whole.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import msgspec
from msgspec import Meta

from waystation.client.feed import Feed
from waystation.client.message import Message
from waystation.client.offsets import EARLIEST, LATEST
from waystation.client.raw import PartitionReader
from waystation.client.settings import ConsumerSettings
from waystation.filters.selecting import Filter
from waystation.gateway.bodies import wanted_packing
from waystation.gateway.payloads import StoredMessage, Values, shown
from waystation.gateway.problems import refusal
from waystation.gateway.reading import filter_of, moment_of
from waystation.gateway.routes import NDJSON, Call, Params, Route
from waystation.gateway.streams import Stream
from waystation.gateway.topics import Offset as OffsetField
from waystation.gateway.topics import Partition, Since, TopicName, Where
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset

if TYPE_CHECKING:
    from waystation.gateway.clients import Clients

__all__ = ["BULK_OUT"]

_FETCH_BYTES: Final = 256 << 10
_BATCH_BYTES: Final = 64 << 20
_TAKE: Final = 200
_PIECE_BYTES: Final = 64 << 10
_SETTINGS: Final = ConsumerSettings(isolation="read_committed", fetch_max_wait_ms=0)
_encode_lines: Final = msgspec.json.Encoder().encode_lines

Ranges = dict[TopicPartition, tuple[Offset, Offset]]


class DumpParams(Params, frozen=True):
    """Which messages."""

    topic: TopicName
    partition: (
        Annotated[Partition, Meta(description="All, one after the other, if not given.")] | None
    ) = None
    offset: Annotated[OffsetField, Meta(description="Begin there; needs a partition.")] | None = (
        None
    )
    since: Since | None = None
    where: Where | None = None
    limit: Annotated[int, Meta(ge=1, le=2**63 - 1, description="No more than so many.")] | None = (
        None
    )
    values: Annotated[
        Values, Meta(description="How values are shown: what is not text, or not JSON, as base64.")
    ] = "text"


async def dump_messages(call: Call[DumpParams, None]) -> Stream:
    """All messages of a partition, or of a topic, to where they end now."""
    wanted = call.parameters
    chosen = None if wanted.where is None else filter_of(wanted.where)
    ranges = await _ranges(call.clients, wanted)
    pieces = _pieces(call.clients, ranges, wanted, chosen)
    packing = wanted_packing(call.headers.get(b"accept-encoding", b""))
    headers: tuple[tuple[bytes, bytes], ...] = ((b"vary", b"accept-encoding"),)
    if packing is None:
        return Stream(pieces, NDJSON, headers)
    headers += ((b"content-encoding", packing),)
    return Stream(_packed(pieces, packing), NDJSON, headers)


async def _ranges(clients: "Clients", wanted: DumpParams) -> Ranges:
    """Where to begin and to end in each partition."""
    count = len((await clients.topic_anew(wanted.topic)).partitions)
    _check_offset(wanted)
    numbers = range(count) if wanted.partition is None else [wanted.partition]
    wheres = [TopicPartition(wanted.topic, number) for number in numbers]
    admin = await clients.admin()
    starts = await admin.list_offsets(dict.fromkeys(wheres, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(wheres, LATEST), isolation="read_committed")
    ranges = {where: (starts[where].offset, ends[where].offset) for where in wheres}
    if wanted.since is not None:
        moment = moment_of(wanted.since)
        since = await admin.list_offsets(dict.fromkeys(wheres, moment))
        for where, (_, end) in ranges.items():
            found = since[where].offset
            ranges[where] = (found if found >= 0 else end, end)
    if wanted.offset is not None:
        (where,) = wheres
        ranges[where] = (_inside(Offset(wanted.offset), ranges[where]), ranges[where][1])
    return ranges


def _check_offset(wanted: DumpParams) -> None:
    if wanted.offset is None:
        return
    if wanted.partition is None or wanted.since is not None:
        raise refusal(
            400,
            "invalid-parameter",
            "an offset needs a partition, and no since",
            field="offset",
            remedy="name the partition, or leave offset away",
        )


def _inside(offset: Offset, known: tuple[Offset, Offset]) -> Offset:
    start, end = known
    if start <= offset <= end:
        return offset
    raise refusal(
        416,
        "offset-out-of-range",
        f"the partition holds offsets {start} to {end}",
        field="offset",
        remedy="leave offset away to read from the oldest message on",
    )


async def _pieces(
    clients: "Clients", ranges: Ranges, wanted: DumpParams, chosen: Filter | None
) -> AsyncGenerator[bytes, None]:
    left = wanted.limit
    gathered: list[bytes] = []
    size = 0
    for where, (begin, end) in ranges.items():
        async with aclosing(_messages(clients, where, begin, end, chosen)) as messages:
            async for some in messages:
                lines = _encode_lines(shown(some[:left], wanted.values))
                left = None if left is None else left - len(some)
                gathered.append(lines)
                size += len(lines)
                if size >= _PIECE_BYTES:
                    yield b"".join(gathered)
                    gathered, size = [], 0
                if left is not None and left <= 0:
                    break
        if left is not None and left <= 0:
            break
    if gathered:
        yield b"".join(gathered)


async def _messages(
    clients: "Clients", where: TopicPartition, begin: Offset, end: Offset, chosen: Filter | None
) -> AsyncGenerator[list[Message], None]:
    """Committed messages of ``[begin, end)``, some at a time."""
    feed = Feed(where, _BATCH_BYTES, chosen)
    feed.seek(begin)
    reader = PartitionReader(await clients.router(), _SETTINGS, where)
    await reader.open()
    while feed.fetch_at < end:
        fetched = await reader.fetch(feed.fetch_at, _FETCH_BYTES)
        if not fetched.batches:
            break
        feed.add(fetched.records, fetched.aborted)
        while feed.has_messages:
            some = feed.take(_TAKE)
            if some and some[-1].offset >= end:
                some = [one for one in some if one.offset < end]
            if some:
                yield some
            await asyncio.sleep(0)


# --- packing ------------------------------------------------------------------------------------


class _Packer(Protocol):
    def compress(self, content: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


async def _packed(pieces: AsyncIterator[bytes], packing: bytes) -> AsyncGenerator[bytes, None]:
    """The pieces, packed beside the loop."""
    packer = _packer(packing)
    async for piece in pieces:
        yield await asyncio.to_thread(packer.compress, piece)
    yield await asyncio.to_thread(packer.flush)


def _packer(packing: bytes) -> _Packer:
    if packing == b"gzip":
        return zlib.compressobj(1, zlib.DEFLATED, 31)
    import zstandard

    return zstandard.ZstdCompressor(level=1).compressobj()


BULK_OUT = [
    Route(
        method="GET",
        path="/v1/topics/{topic}/messages/stream",
        summary="All messages of a topic or a partition, one per line",
        tag="messages",
        handler=dump_messages,
        parameters=DumpParams,
        answer=StoredMessage,
        answer_types=(NDJSON,),
        errors=(416, 504),
    ),
]
