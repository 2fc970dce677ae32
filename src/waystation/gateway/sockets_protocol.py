"""WebSocket connections that cannot be held open, or filled, for nothing.

uvicorn reads one message at a time, pings peers and gives up those that do not answer.  What it
leaves open is bounded here:

- a peer must take what it is sent within ``request_s``, or go on taking it (``taking.py``),
  closing or not;
- a message comes in a bounded number of parts, though each may be empty;
- of what came at once, such as thousands of messages, as much is looked at in one turn of the loop
  as takes a moment, and nothing more is read meanwhile;
- pings are answered only while their answers are taken.

Of what is sent nothing goes through a library: the frames of a message are the same for all
subscribers, and are made once (``sockets.py``).
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from waystation.gateway.bodies import Limits
from waystation.gateway.sockets_walk import FrameWalk, lone_text
from waystation.gateway.taking import Unsent

__all__ = ["BoundedSocket"]

_MOST_PARTS: Final = 1_024
_NOT_TEXT: Final = 1007
_TOO_BIG: Final = 1009
_SLICE_BYTES: Final = 4 << 10
_TURN_S: Final = 0.001


class BoundedSocket(WebSocketsSansIOProtocol):
    """One WebSocket connection."""

    def __init__(self, limits: Limits, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._limits = limits
        self.on_lost: Callable[[], object] | None = None
        self.on_said: Callable[[bytes], bool] | None = None
        self.is_paused = False
        self._walk = FrameWalk()
        self._stuck_at: float | None = None
        self._unsent: Unsent | None = None
        self._unread = bytearray()

    # --- the wire of a conversation -------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether what is written may still arrive."""
        return not (self.close_sent or self.transport.is_closing())

    def write(self, content: bytes) -> None:
        """Hand over whole frames."""
        if not (self.close_sent or self.transport.is_closing()):
            self.transport.write(content)

    def hold_at_most(self, most_bytes: int | None) -> None:
        """Pause when so much waits for the caller."""
        if not self.transport.is_closing():
            self.transport.set_write_buffer_limits(most_bytes)

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
        self.is_paused = False  # nobody waits for who is gone
        if self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        """Bytes of any number of messages.  HOT: most of them are credit."""
        if self._unread:
            self._unread += data
        elif self._is_taken(data):
            return
        elif len(data) <= _SLICE_BYTES:
            self._hand_over(data)
        else:
            self._unread += data
            self.transport.pause_reading()
            self._read_on()

    def _is_taken(self, data: bytes) -> bool:
        """Whether it was a message by itself that could be taken at once."""
        if self.on_said is None or self.close_sent or not self._walk.is_between:
            return False
        said = lone_text(data)
        return said is not None and self.on_said(said)

    def _hand_over(self, data: bytes) -> None:
        if self.handshake_initiated:
            self._walk.walk(data)
        super().data_received(data)

    def _read_on(self) -> None:
        until, at = perf_counter() + _TURN_S, 0
        while at < len(self._unread) and not self.transport.is_closing():
            self._hand_over(bytes(self._unread[at : at + _SLICE_BYTES]))
            at += _SLICE_BYTES
            if perf_counter() > until:
                break
        del self._unread[:at]
        if self.transport.is_closing():
            self._unread.clear()
        elif self._unread:
            self.loop.call_soon(self._read_on)
        elif not self.read_paused:
            self.transport.resume_reading()

    async def receive(self) -> Any:
        """The next of what came, in the words of ASGI."""
        message = await super().receive()
        if self._unread:
            self.transport.pause_reading()
        return message

    async def run_asgi(self) -> None:
        """Let the application talk; what it was told leads back here, and would be found late."""
        await super().run_asgi()
        vars(self)["scope"] = None

    async def send(self, message: Any) -> None:
        """What the application says; to refuse is an answer too, which uvicorn would miss."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True

    def pause_writing(self) -> None:
        """The peer does not read; it has as long as for a request."""
        super().pause_writing()
        self.is_paused = True
        self._stuck_at = self.loop.time()
        self._unsent = Unsent(self.transport)

    def resume_writing(self) -> None:
        """The peer reads again."""
        super().resume_writing()
        self.is_paused = False
        self._stuck_at = self._unsent = None

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

    def send_receive_event_to_app(self) -> None:
        """A message is whole; if it can be taken at once, no queue is needed."""
        if self.on_said is not None and len(self.frames) == 1 and self.on_said(self.frames[0]):
            self.frames = []
            return
        if self.curr_msg_data_type == "text" and not _is_text(b"".join(self.frames)):
            # A peer's mistake is nothing for an operator's eyes, as it is to uvicorn.
            self.frames = []
            self.conn.fail(_NOT_TEXT, "what is sent as text is UTF-8")
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()

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
        elif self._unsent is not None and self._unsent.moves(self.transport):
            self._stuck_at = now
        elif now - self._stuck_at > self._limits.request_s:
            self.transport.abort()


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
