"""One client: its requests in, its replies out.

1. Requests are handed over in the order they arrive, several at a time if the client pipelines;
   replies leave in the order of their requests, however late an earlier one is answered.
2. A client is read from only while it is owed few replies, takes those it is sent, and is not
   ahead of its turn (``gate.py``).
3. Whatever is wrong with a client, or with the handling of its request, ends this connection
   and no other.

Buffers are in ``inbox.py``, the order of replies in ``replies.py``, the way out in
``outbox.py``.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, Final, cast

from waystation.model.errors import MalformedFrameError, UnsupportedVersionError
from waystation.runtime.regions import Parts
from waystation.server.gate import (
    CLOSED,
    FINISHING,
    GATHERING,
    LEAVING,
    NO_MEMORY,
    NOT_TAKING,
    OWED_TOO_MANY,
    SAYING_GOODBYE,
    TURN_OVER,
    Gate,
)
from waystation.server.hub import Hub
from waystation.server.inbox import Inbox
from waystation.server.outbox import Chunk, Outbox, ShortRegionError
from waystation.server.replies import Replies
from waystation.server.requests import PENDING, Request, Respond
from waystation.server.settings import ServerSettings
from waystation.telemetry.logs import get_logger
from waystation.wire.headers import RequestHeader, UnknownRequestError

__all__ = ["Connection", "Parts", "Request", "Respond"]

_events = get_logger("server")
_LENGTH = struct.Struct(">i")
_HEADER_BYTES_MIN: Final = 8

_TURN_REQUESTS: Final = 32
_TURN_BYTES: Final = 256 << 10
_FLUSH_FROM_BYTES: Final = 256 << 10

# From how many replies on a client that sends little at a time is read less often: reading it
# costs as much as a small request, and one more request is not answered before the others.
_GATHER_FROM_REPLIES: Final = 32
_GATHER_BELOW_BYTES: Final = 16 << 10

_GOODBYE_S: Final = 0.5


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one socket; made by the listener for each that it accepts."""

    __slots__ = (
        "_gate",
        "_hub",
        "_inbox",
        "_loop",
        "_outbox",
        "_replies",
        "_serving",
        "_streak_bytes",
        "_transport",
        "_unflushed",
        "_when_closed",
        "host",
        "peer",
        "received_bytes",
        "session",
    )

    def __init__(self, hub: Hub, loop: asyncio.AbstractEventLoop) -> None:
        self._hub = hub
        self._loop = loop
        self._inbox = Inbox(hub.buffer, hub.memory)
        self._replies = Replies()
        self._serving = self._unflushed = False
        self._streak_bytes = 0
        self._when_closed: list[Callable[[], None]] = []
        self.received_bytes = 0
        self.peer = self.host = ""
        self.session: dict[str, Any] = {}

    @property
    def closed(self) -> bool:
        """True once nothing can be sent any more."""
        return bool(self._gate.reasons & CLOSED)

    @property
    def pending(self) -> int:
        """How many requests wait for a reply: theirs, or that of one before them."""
        return len(self._replies)

    @property
    def sent_bytes(self) -> int:
        """How many bytes the client's side of the network has taken."""
        return self._outbox.sent_bytes

    @property
    def claimed_bytes(self) -> int:
        """How much memory an incomplete large request keeps from others."""
        return self._inbox.claimed_bytes

    # What the owner does with it.

    def close(self, reason: str) -> None:
        """End the connection now; replies that have not left are dropped."""
        if self._gate.reasons & CLOSED:
            return
        self._gate.reasons |= CLOSED
        _events.debug("connection.closed", peer=self.peer, reason=reason)
        self._transport.close()
        self._outbox.close()
        self._replies.drop()
        if not self._serving:
            self._inbox.drop()
        self._hub.forget(self)
        ending, self._when_closed = self._when_closed, []
        for run in ending:
            run()

    def finish(self) -> None:
        """Read no further request, and close once those already read are answered."""
        if not self._gate.reasons & (SAYING_GOODBYE | CLOSED):
            self._gate.shut(FINISHING)
            self._end_if_finished()

    def when_closed(self, run: Callable[[], None]) -> None:
        """Have ``run`` called when the connection ends, however it ends."""
        self._when_closed.append(run)

    # What the loop tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket over, or close it where a limit is reached."""
        self._transport = cast(asyncio.Transport, transport)
        self._gate = Gate(self._loop, self._transport, self._go_on)
        name = transport.get_extra_info("peername") or ("gone", 0)
        self.host = str(name[0])
        self.peer = f"[{self.host}]:{name[1]}" if ":" in self.host else f"{self.host}:{name[1]}"
        if not self._hub.admit(self) or not self._open_outbox():
            self._gate.reasons = CLOSED
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop reads to."""
        return self._inbox.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what a read brought.  HOT: once per read (benchmarks/server/echo.py).

        uvloop reads a socket again at once, up to 32 times, for as long as reads fill their
        buffer.  A client that keeps them full is stopped until the others had their turn.
        """
        if self._gate.reasons & SAYING_GOODBYE:
            return
        self.received_bytes += nbytes
        self._hub.traffic.bytes_in.value += nbytes
        if self._inbox.received(nbytes):
            self._streak_bytes += nbytes
            if self._streak_bytes >= _TURN_BYTES:
                self._gate.shut(TURN_OVER)
        else:
            self._streak_bytes = 0
        if not self._inbox.is_growing():
            self._serve()
            if nbytes < _GATHER_BELOW_BYTES and len(self._replies) >= _GATHER_FROM_REPLIES:
                self._gather()

    def eof_received(self) -> bool:
        """The client sends no more: it gets the replies that are there, and then it ends."""
        self.flush()
        if self.closed or self._outbox.is_empty:
            self.close("the client closed it")
            return False
        self._gate.shut(LEAVING)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self.close("the client closed it" if exc is None else str(exc))

    def _open_outbox(self) -> bool:
        """Get ready to write; false if the socket is gone or there is no descriptor left."""
        traffic = self._hub.traffic
        try:
            sock = _own_socket(self._transport.get_extra_info("socket"), self._hub.settings)
        except OSError as error:
            self._hub.complain("connection.failed", peer=self.peer, problem=str(error))
            self._hub.forget(self)
            return False
        self._outbox = Outbox(sock, self._loop, self, traffic.bytes_out, traffic.sendfile_bytes)
        return True

    def _gather(self) -> None:
        linger_ms = self._hub.settings.socket_read_linger_ms
        if linger_ms and not self._gate.reasons:
            self._gate.shut(GATHERING)
            self._loop.call_later(linger_ms / 1_000, self._gate.open, GATHERING)

    # Requests.

    def _serve(self) -> None:
        """Hand over whole frames until there are none, or a reason to stop.

        HOT: once per read; the loop once per request.
        """
        inbox = self._inbox
        view, at, end = inbox.view, inbox.at, inbox.end
        limit_bytes = self._hub.settings.socket_request_max_bytes
        need = served = 0
        self._serving = True
        while not self._gate.reasons & ~TURN_OVER:
            if end - at < 4:
                need = 4
                break
            (size,) = _LENGTH.unpack_from(view, at)
            if not _HEADER_BYTES_MIN <= size <= limit_bytes:
                self._refuse_frame(size)
                break
            need = 4 + size
            if end - at < need:
                break
            self._begin(view[at + 4 : at + need])
            at += need
            need = 0
            served += 1
            if served == _TURN_REQUESTS and at < end:
                self._gate.shut(TURN_OVER)
                break
        self._serving = False
        self._hub.traffic.requests.value += served
        if self._gate.reasons & CLOSED:
            inbox.drop()
            return
        inbox.at = at
        if not inbox.settle(need, self._memory_is_there):
            self._gate.shut(NO_MEMORY)
        if self._streak_bytes:
            self._flush_soon()
        else:
            self.flush()

    def _begin(self, frame: memoryview) -> None:
        """Hand one request over.  HOT: once per request."""
        try:
            header = self._hub.decode_header(frame)
        except UnknownRequestError as unknown:
            header = unknown.header
        except MalformedFrameError as error:
            self._refuse(error)
            return
        request = self._expect(header, frame)
        try:
            self._hub.handle(request, request.respond)
            request.body.release()
        except (MalformedFrameError, UnsupportedVersionError) as error:
            self._refuse(error)
        except Exception as error:  # a request's outermost frame
            self._give_up(request, error)
        if self._hub.scribble:
            frame[:] = b"\xdd" * len(frame)

    def _expect(self, header: RequestHeader, frame: memoryview) -> Request:
        api_key, version, correlation_id, client_id, body_at = header
        request = Request(api_key, version, correlation_id, client_id, frame[body_at:], self)
        self._replies.expect(request)
        if len(self._replies) >= self._hub.settings.max_inflight_requests_per_connection:
            self._gate.shut(OWED_TOO_MANY)
        return request

    def _refuse_frame(self, size: int) -> None:
        limit_bytes = self._hub.settings.socket_request_max_bytes
        self._refuse(
            MalformedFrameError(
                f"a request of {size} bytes; it must have {_HEADER_BYTES_MIN} to {limit_bytes}"
            )
        )

    def _refuse(self, error: MalformedFrameError | UnsupportedVersionError) -> None:
        """The client sends what nobody here reads; its next request would be no better."""
        self._hub.traffic.malformed.add()
        self._hub.complain("request.malformed", peer=self.peer, problem=str(error))
        self._cut(str(error))

    def _give_up(self, request: Request, error: Exception) -> None:
        self._hub.traffic.failed.add()
        _events.error(
            "request.failed",
            peer=self.peer,
            api_key=int(request.api_key),
            api_version=request.api_version,
            correlation_id=request.correlation_id,
            client_id=request.client_id,
            exc_info=error,
        )
        self._cut(f"the request failed: {error}")

    def _cut(self, reason: str) -> None:
        """End the connection, but not the replies to requests before the bad one."""
        self.flush()
        self.close(reason)

    # Replies.

    def answer(self, request: Request, parts: Parts | None) -> None:
        """Note the reply to ``request``; it leaves when all earlier ones have.

        HOT: once per request.
        """
        if request.reply is not PENDING:
            _events.error("reply.repeated", peer=self.peer, api_key=int(request.api_key))
            return
        if self._gate.reasons & CLOSED:
            request.reply = None
            return
        replies = self._replies
        try:
            if not replies.settle(request, parts):
                return
        except Exception:  # parts that are none would leave a hole in the stream
            self.close("a reply could not be framed")
            raise
        limit = self._hub.settings.max_inflight_requests_per_connection
        if self._gate.reasons & OWED_TOO_MANY and len(replies) < limit:
            self._gate.open(OWED_TOO_MANY)
        if not self._serving:
            self._flush_soon()
        elif replies.ready_bytes >= _FLUSH_FROM_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what is ready."""
        self._unflushed = False
        if self._replies.ready and not self._gate.reasons & CLOSED:
            parts, nbytes, in_memory = self._replies.take()
            if in_memory:
                self._outbox.send_bytes(cast(list[Chunk], parts), nbytes)
            else:
                self._outbox.send(parts)
            if not self._outbox.is_empty:
                self._gate.shut(NOT_TAKING)
        self._end_if_finished()

    def sent_all(self) -> None:
        """The client took everything it was sent."""
        self._gate.open(NOT_TAKING)
        if self._gate.reasons & LEAVING:
            self.close("the client closed it")
        self._end_if_finished()

    def cannot_send(self, error: OSError | ShortRegionError) -> None:
        """The client is gone, or a file cannot be read; the reply's length is already out."""
        if not isinstance(error, ConnectionError):
            _events.error("reply.broken", peer=self.peer, problem=str(error))
        self.close(f"cannot send: {error}")

    def _flush_soon(self) -> None:
        if not self._unflushed:
            self._unflushed = True
            self._hub.flush_soon(self)

    def _end_if_finished(self) -> None:
        if self._gate.reasons & (FINISHING | CLOSED) != FINISHING or self._serving:
            return
        if not self._replies and not self._replies.ready and self._outbox.is_empty:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        """Close so that the last replies are not lost.

        Closing a socket that holds unread requests resets it, and a client that learns of the
        reset may throw away replies it has not looked at.  So only our side is closed, and what
        still comes in is thrown away, until the client is gone too or has had its time.
        """
        self._gate.reasons = SAYING_GOODBYE
        self._outbox.send_end()
        self._inbox.drop()
        self._loop.call_later(_GOODBYE_S, self.close, "finished")
        self._gate.read()

    def _memory_is_there(self) -> None:
        self._gate.open(NO_MEMORY)

    def _go_on(self) -> None:
        """Another turn: what was kept comes before what is in the socket."""
        self._streak_bytes = 0
        if self._inbox.at < self._inbox.end and not self._inbox.is_growing():
            self._serve()


def _own_socket(accepted: socket.socket, settings: ServerSettings) -> socket.socket:
    """A second descriptor of the accepted socket, to write to (see ``outbox.py``)."""
    sock = socket.socket(
        accepted.family, accepted.type, accepted.proto, fileno=os.dup(accepted.fileno())
    )
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if settings.socket_send_buffer_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.socket_send_buffer_bytes)
    return sock
