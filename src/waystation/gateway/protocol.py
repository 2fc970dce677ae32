"""HTTP connections that cannot be held open for nothing.

uvicorn bounds how long a connection rests between requests, ``ordering.py`` what is sent ahead.
What they leave open is bounded here:

- a request must arrive whole, header and body, within ``request_s`` of its first byte;
- a connection over which nothing ever came rests no longer than one between requests;
- an answer must be taken within the same time, or go on being taken (``taking.py``);
- its header lines are bounded in bytes, and connections in number.

The clock is looked at once per second for all connections, so that a request costs no timer.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any, Final

from waystation.gateway.bodies import Limits
from waystation.gateway.ordering import OrderedProtocol
from waystation.gateway.problems import refusal
from waystation.gateway.taking import Unsent

__all__ = ["bounded_protocol", "bounded_sockets", "watch"]

_LOOK_S: Final = 1.0
_LINE_BYTES: Final = 4  # colon, space and line end
_UNTAKEN_MS: Final = 60_000
_USER_TIMEOUT: Final = getattr(socket, "TCP_USER_TIMEOUT", 18)


class BoundedProtocol(OrderedProtocol):
    """One connection; ``begun_at`` is since when something is under way on it."""

    limits = Limits()
    begun_at: float | None = None
    on_lost: Callable[[], object] | None = None
    on_said: Callable[[bytes], bool] | None = None
    is_paused = False
    _was_heard = False
    _unsent: Unsent | None = None
    _header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it; a silent one is watched from the start."""
        super().connection_made(transport)
        self.begun_at = self.loop.time()
        plain: socket.socket | None = transport.get_extra_info("socket")
        if plain is not None:
            with contextlib.suppress(OSError):
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # What nobody takes off the network, such as heartbeats of a stream, means the end.
                plain.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, _UNTAKEN_MS)
        if len(self.connections) > self.limits.connections:
            self.refuse(
                refusal(
                    503,
                    "too-many-connections",
                    f"{self.limits.connections} connections are open already",
                    remedy="keep connections and use them again, or ask another node",
                )
            )

    def connection_lost(self, exc: Exception | None) -> None:
        """The caller is gone."""
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()
        self._forget_requests()

    def handle_websocket_upgrade(self) -> None:
        """From now on the connection is somebody else's."""
        super().handle_websocket_upgrade()
        self._forget_requests()
        vars(self)["parser"] = None

    def _forget_requests(self) -> None:
        """They lead back here: without them nothing is left to be found as garbage, late."""
        vars(self).update(cycle=None, scope=None, _running=None)

    def data_received(self, data: bytes) -> None:
        """Bytes; the first of them begin a request."""
        if not self._was_heard:
            self._was_heard, self.begun_at = True, self.loop.time()
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope["state"]["wire"] = self
        self._header_bytes = 0
        self.begun_at = self.loop.time()

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header line."""
        self._count(len(name) + len(value) + _LINE_BYTES)
        super().on_header(name, value)

    def on_message_complete(self) -> None:
        """The request is whole; its answer takes what it takes."""
        super().on_message_complete()
        self.begun_at = None

    def pause_writing(self) -> None:
        """The caller does not read; it has as long as for a request."""
        super().pause_writing()
        self.is_paused = True
        self.begun_at = self.loop.time()
        self._unsent = Unsent(self.transport)

    def resume_writing(self) -> None:
        """The caller reads again."""
        super().resume_writing()
        self.is_paused = False
        self.begun_at = self._unsent = None

    def check(self, now: float) -> None:
        """Let go of a caller that takes too long, or has gone while nothing was read."""
        if self.flow.read_paused:
            if self.has_gone():
                self.transport.abort()
                return
            if self.begun_at is not None and not self.flow.write_paused:
                self.begun_at = now  # whatever is missing, it is us who do not take it
        if self._unsent is not None and self._unsent.moves(self.transport):
            self.begun_at = now
        limit_s = self.limits.request_s if self._was_heard else self.limits.idle_s
        if self.begun_at is None or now - self.begun_at <= limit_s:
            return
        if self.flow.write_paused or self.transport.is_closing():
            # Closing waits for the caller to take the rest, which may be never.
            self.transport.abort()
            return
        if not self._was_heard:
            # Who keeps a connection at hand would take any word for an answer to its first request.
            self.transport.close()
            return
        self.refuse(
            refusal(
                408,
                "request-too-slow",
                f"the request did not arrive whole within {limit_s:g} s",
                remedy="send it at once, or in several requests",
            )
        )

    # --- the wire of a stream -------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether what is written may still arrive."""
        return not self.transport.is_closing()

    def write(self, content: bytes) -> None:
        """Hand over bytes of a body that is under way."""
        if not self.transport.is_closing():
            self.transport.write(content)

    def hold_at_most(self, most_bytes: int | None) -> None:
        """Pause when so much waits for the caller."""
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits(most_bytes)

    async def drained(self) -> None:
        """Wait until the caller has read, or is gone."""
        await self.flow.drain()

    def _count(self, more: int) -> None:
        self._header_bytes += more
        if self._header_bytes > self.limits.header_bytes:
            raise refusal(
                431,
                "header-too-large",
                f"address and header lines take more than {self.limits.header_bytes} bytes",
                remedy="say less there; the body may be longer",
            )


def bounded_protocol(limits: Limits) -> type[BoundedProtocol]:
    """The class of connections with these limits."""
    return type("LimitedProtocol", (BoundedProtocol,), {"limits": limits})


def bounded_sockets(limits: Limits) -> Callable[..., asyncio.Protocol]:
    """Makes the connections that become WebSockets; what they need is loaded by the first."""

    def made(**uvicorns: Any) -> asyncio.Protocol:
        from waystation.gateway.sockets_protocol import BoundedSocket

        return BoundedSocket(limits, **uvicorns)

    return made


async def watch(connections: set[Any]) -> None:
    """Look after all connections until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_LOOK_S)
        now = loop.time()
        for connection in list(connections):
            connection.check(now)
