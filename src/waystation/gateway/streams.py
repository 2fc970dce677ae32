"""Answers that go on: bodies that come in pieces, and conversations over WebSockets.

A handler returns a ``Stream``, or a ``Conversation``; here they are counted, run, and ended.
Promises:

1. no more than ``Limits.streams`` of them run at once: who comes then gets a problem, 503;
2. what runs for a caller is cancelled, and has ended, once the caller is gone;
3. a caller that does not read costs what its connection holds and no more: whoever pours waits
   for room, and ``protocol.py`` lets go of callers that make none;
4. when the node stops every one is ended: what has a farewell says it and ends in order, what has
   none is cut off, so that nobody takes a part for the whole.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, NamedTuple, Protocol

from waystation.gateway.problems import ProblemError, refusal
from waystation.gateway.routes import NDJSON
from waystation.telemetry.logs import get_logger

__all__ = ["Pushed", "Stream", "Streams", "Wire", "chunk"]

Send = Callable[[Any], Awaitable[None]]

_events = get_logger("gateway")
_STOPPING_S: Final = 2.0
_LAST: Final = {"type": "http.response.body", "body": b"", "more_body": False}


class Wire(Protocol):
    """A caller's connection, by which the same bytes can go to many callers, made once."""

    on_lost: Callable[[], object] | None
    """Called once the connection is gone."""

    on_said: Callable[[bytes], bool] | None
    """Of a WebSocket: called with each message; what it does not take is to be received."""

    @property
    def is_open(self) -> bool:
        """Whether what is written may still arrive."""

    @property
    def is_paused(self) -> bool:
        """Whether so much waits for the caller already that nothing should be written."""

    def write(self, content: bytes) -> None:
        """Hand over bytes as they are."""

    async def drained(self) -> None:
        """Return when there is room, or the caller is gone."""

    def hold_at_most(self, most_bytes: int | None) -> None:
        """Be paused while more than this waits for the caller; ``None`` is what is usual."""


class Stream(NamedTuple):
    """A body in pieces, taken from ``chunks`` as fast as the caller reads, and closed at its end.

    ``farewell`` is what is said last if the node stops before the end.
    """

    chunks: AsyncGenerator[bytes, None]
    media_type: str = NDJSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    farewell: bytes | None = None


class Pushed(NamedTuple):
    """As ``Stream``, for who writes to the caller's wire by itself, ``chunk`` for ``chunk``."""

    pour: Callable[[Wire], Awaitable[None]]
    media_type: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    farewell: bytes | None = None


def chunk(content: bytes) -> bytes:
    """A piece of a body as it goes over the wire; an empty one would end the body."""
    return b"%x\r\n%s\r\n" % (len(content), content)


class Streams:
    """All that go on at one node."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running: set[asyncio.Task[None]] = set()
        self.is_stopping = False

    def __len__(self) -> int:
        return len(self._running)

    def check_room(self) -> None:
        """Refuse one more if there are enough."""
        if self.is_stopping:
            raise refusal(503, "stopping", "this node is about to stop", remedy="ask another node")
        if len(self._running) >= self._most:
            raise refusal(
                503,
                "too-many-streams",
                f"{len(self._running)} streams and sockets are open already",
                remedy="close those that are not read, or ask another node",
            )

    async def run(self, work: Awaitable[None], wire: Wire) -> BaseException | None:
        """Run ``work`` until it ends, its caller is gone or the node stops; what it failed with.

        A ``CancelledError`` says that it was ended from outside.
        """
        task = asyncio.ensure_future(_awaited(work))
        self._running.add(task)
        wire.on_lost = task.cancel
        if not wire.is_open:
            task.cancel()
        try:
            await asyncio.wait([task])
        finally:
            wire.on_lost = None
            self._running.discard(task)
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        return asyncio.CancelledError() if task.cancelled() else task.exception()

    async def answer(
        self, stream: Stream | Pushed, wire: Wire, send: Send, *, head_only: bool = False
    ) -> None:
        """Answer a request with a stream; a problem instead if there are enough."""
        try:
            self.check_room()
        except ProblemError:
            if isinstance(stream, Stream):
                await stream.chunks.aclose()
            raise
        kind = (b"content-type", stream.media_type.encode())
        told = [kind, (b"cache-control", b"no-store"), *stream.headers]
        await send({"type": "http.response.start", "status": 200, "headers": told})
        if head_only:
            if isinstance(stream, Stream):
                await stream.chunks.aclose()
            await send(_LAST)
            return
        pour = stream.pour(wire) if isinstance(stream, Pushed) else _poured(stream.chunks, wire)
        error = await self.run(pour, wire)
        if isinstance(error, asyncio.CancelledError):
            if not wire.is_open or stream.farewell is None:
                return
            wire.write(chunk(stream.farewell))
        elif error is not None:
            _events.error("stream.failed", exc_info=error)
            return
        await send(_LAST)

    async def stop(self) -> None:
        """End all, and let nobody begin; who does not end within a moment is left behind."""
        self.is_stopping = True
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_STOPPING_S)


async def _awaited(work: Awaitable[None]) -> None:
    await work


async def _poured(chunks: AsyncGenerator[bytes, None], wire: Wire) -> None:
    """Piece by piece, each when there is room for it."""
    async with aclosing(chunks):
        async for content in chunks:
            if wire.is_paused:
                await wire.drained()
            if content:
                wire.write(chunk(content))
