"""WebSocket connections that cannot be held open, or filled, for nothing.

uvicorn reads one message at a time, pings peers and gives up those that do not answer.  What it
leaves open is bounded here:

- a peer must take what it is sent within ``request_s``, closing or not;
- a message comes in a bounded number of parts, though each may be empty;
- pings are answered only while their answers are taken.

Of what is sent nothing goes through a library: the frames of a message are the same for all
subscribers, and are made once (``sockets.py``).
"""

from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from waystation.gateway.bodies import Limits

__all__ = ["BoundedSocket"]

_MOST_PARTS: Final = 1_024
_TOO_BIG: Final = 1009


class BoundedSocket(WebSocketsSansIOProtocol):
    """One WebSocket connection."""

    def __init__(self, limits: Limits, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._limits = limits
        self.on_lost: Callable[[], object] | None = None
        self._stuck_at: float | None = None

    # --- the wire of a conversation -------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether what is written may still arrive."""
        return not (self.close_sent or self.transport.is_closing())

    @property
    def is_paused(self) -> bool:
        """Whether the peer has to read first."""
        return not self.writable.is_set()

    def write(self, content: bytes) -> None:
        """Hand over whole frames."""
        if not (self.close_sent or self.transport.is_closing()):
            self.transport.write(content)

    async def drained(self) -> None:
        """Wait until the peer has read, or is gone."""
        await self.writable.wait()

    # --- what uvicorn calls ---------------------------------------------------------------------

    def handle_connect(self, event: Any) -> None:
        """A request to become a WebSocket; the application finds the wire in its scope."""
        super().handle_connect(event)
        if not self.close_sent:
            self.scope["state"]["wire"] = self

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    def pause_writing(self) -> None:
        """The peer does not read; it has as long as for a request."""
        super().pause_writing()
        self._stuck_at = self.loop.time()

    def resume_writing(self) -> None:
        """The peer reads again."""
        super().resume_writing()
        self._stuck_at = None

    def handle_ping(self) -> None:
        """A ping; who does not take the answers gets none."""
        if self.is_paused:
            self.conn.data_to_send()
        else:
            super().handle_ping()

    def handle_cont(self, event: Frame) -> None:
        """A further part of a message."""
        if len(self.frames) >= _MOST_PARTS:
            self.conn.fail(_TOO_BIG, f"a message has at most {_MOST_PARTS} parts")
            self.handle_parser_exception()
            self.frames = []
            return
        super().handle_cont(event)

    def handle_close(self, event: Frame) -> None:
        """The peer says good-bye, and goes."""
        super().handle_close(event)
        if self.on_lost is not None:
            self.on_lost()

    def keepalive_timeout(self) -> None:
        """A ping was not answered: nobody is there to wait for."""
        super().keepalive_timeout()
        self.transport.abort()

    def check(self, now: float) -> None:
        """Let go of a peer that does not take what it was sent."""
        if self._stuck_at is None:
            if self.transport.is_closing():
                self._stuck_at = now
        elif now - self._stuck_at > self._limits.request_s:
            self.transport.abort()
