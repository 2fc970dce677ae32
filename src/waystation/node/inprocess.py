"""A client's connection to the broker in its own process: the same bytes, no socket.

Frames pass the dispatcher that the listener's clients pass, in the same versions and under the
same limit of size, so that a client inside a node is a client like any other.

1. Replies come in the order of requests.
2. When the connection ends, whoever ends it, every waiting future is failed, and the broker
   drops what it did on the connection's behalf.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from waystation.client.errors import ConnectionLostError
from waystation.client.transport import Told, tell_when_done
from waystation.runtime.regions import FileRegion, Parts
from waystation.server.connection import Connection
from waystation.server.hub import Handle
from waystation.server.requests import PENDING, Request
from waystation.telemetry.logs import get_logger
from waystation.wire.headers import UnknownRequestError, decode_request_header
from waystation.wire.schema import Part

_events = get_logger("node")


class InProcess:
    """Makes connections to one broker and ends them with it."""

    def __init__(self, handle: Handle, request_max_bytes: int) -> None:
        self._handle = handle
        self._request_max_bytes = request_max_bytes
        self._open: dict[InProcessTransport, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def connect(self) -> "InProcessTransport":
        """A new connection."""
        transport = InProcessTransport(self._handle, self._request_max_bytes)
        self._open[transport] = None
        transport.when_closed(lambda: self._open.pop(transport))
        return transport

    def close(self) -> None:
        """End all connections."""
        for transport in list(self._open):
            transport.close()


class InProcessTransport:
    """Both ends at once: the client's transport, and the connection that handlers see."""

    peer = host = "in process"

    def __init__(self, handle: Handle, request_max_bytes: int) -> None:
        self.session: dict[str, Any] = {}
        self._handle = handle
        self._request_max_bytes = request_max_bytes
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[Request, asyncio.Future[memoryview]]] = deque()
        self._when_closed: list[Callable[[], None]] = []
        self._closed = False

    # --- the client's side ------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """True once nothing can be sent any more."""
        return self._closed

    @property
    def congested(self) -> bool:
        """Never: a frame is handled when it is sent."""
        return False

    async def drained(self) -> None:
        """At once."""

    def request(self, frame: Sequence[Part]) -> asyncio.Future[memoryview]:
        """Handle a frame; the future holds the reply."""
        reply: asyncio.Future[memoryview] = self._loop.create_future()
        self._begin(frame, reply)
        return reply

    def exchange(self, frame: Sequence[Part], told: Told) -> None:
        """Likewise; ``told`` hears of the reply."""
        tell_when_done(self.request(frame), told)

    def send(self, frame: Sequence[Part]) -> None:
        """Handle a frame that has no reply."""
        self._begin(frame, self._loop.create_future())

    def close(self, reason: str = "the client closed it") -> None:
        """End the connection and fail whoever waits; either side may."""
        if self._closed:
            return
        self._closed = True
        _events.debug("connection.closed", peer=self.peer, reason=reason)
        waiting, self._waiting = self._waiting, deque()
        for _, reply in waiting:
            _fail(reply, reason)
        ending, self._when_closed = self._when_closed, []
        for run in ending:
            run()

    # --- the broker's side ------------------------------------------------------------------

    def when_closed(self, run: Callable[[], None]) -> None:
        """Have ``run`` called when the connection ends."""
        self._when_closed.append(run)

    def answer(self, request: Request, parts: Parts | None) -> None:
        """Note the reply to ``request``; it is given when all earlier ones were."""
        request.reply = parts
        while self._waiting and self._waiting[0][0].reply is not PENDING:
            answered, reply = self._waiting.popleft()
            if answered.reply is not None and not reply.done():
                reply.set_result(_joined(answered.reply))

    def _begin(self, frame: Sequence[Part], reply: asyncio.Future[memoryview]) -> None:
        if self._closed:
            _fail(reply, "it was closed before")
            return
        # Writable and our own: a handler stamps batches in place.
        view = memoryview(bytearray(_joined(frame)))
        try:
            request = self._expect(view, reply)
            self._handle(request, request.respond)
        except Exception as error:  # a request's outermost frame
            _events.error("request.failed", peer=self.peer, exc_info=error)
            _fail(reply, str(error))
            self.close(f"the request failed: {error}")

    def _expect(self, view: memoryview, reply: asyncio.Future[memoryview]) -> Request:
        if len(view) > self._request_max_bytes:
            raise ConnectionLostError(
                f"a request of {len(view)} bytes; at most {self._request_max_bytes} are read"
            )
        try:
            header = decode_request_header(view)
        except UnknownRequestError as unknown:
            header = unknown.header
        api_key, version, correlation_id, client_id, body_at = header
        itself = cast(Connection, self)
        request = Request(api_key, version, correlation_id, client_id, view[body_at:], itself)
        self._waiting.append((request, reply))
        return request


def _joined(parts: Sequence[Part]) -> memoryview:
    read = (part.read() if isinstance(part, FileRegion) else part for part in parts)
    return memoryview(b"".join(cast("Iterable[bytes]", read)))


def _fail(reply: asyncio.Future[memoryview], reason: str) -> None:
    if not reply.done():
        reply.set_exception(ConnectionLostError(f"the connection was lost: {reason}"))
        # Nobody may be waiting for a request that has no reply.
        reply.exception()
