"""How frames travel to one broker and replies come back.

A ``Transport`` moves whole frames and knows nothing of what is in them.  Replies come in the
order of the requests, as Kafka promises, so that the oldest waiting future gets the next one.
``TcpTransport`` is the everyday one.  A node injects its own for the broker in its process:
the same bytes then pass the same handlers and limits, without a socket.

Three promises:

1. a frame's length is checked against the limit before memory is taken for it;
2. a large reply is received into the memory that the caller gets, without another copy;
3. when the connection ends, however it ends, everyone who waits is told.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, cast

from waystation.client.bootstrap import Address
from waystation.client.errors import ConnectionLostError
from waystation.model.errors import MalformedFrameError
from waystation.wire.frame import LENGTH_BYTES, framed, payload_bytes
from waystation.wire.schema import Part

__all__ = [
    "LENT_BYTES",
    "Allocate",
    "Connect",
    "TcpTransport",
    "Told",
    "Transport",
    "connect_tcp",
    "tell_when_done",
]

LENT_BYTES = 64 << 10
"""A reply that is shorter may be lent to who is told of it, until that returns."""

_SCRATCH_BYTES = LENT_BYTES
_REPLY_LIMIT_BYTES = 256 << 20


Told = Callable[[memoryview | Exception], None]
"""Who hears of a reply, or of why there is none."""


class Transport(Protocol):
    """One connection to one broker."""

    @property
    def closed(self) -> bool:
        """True once nothing can be sent any more."""
        ...

    @property
    def congested(self) -> bool:
        """True while more waits to be written than the other side takes."""
        ...

    async def drained(self) -> None:
        """Return once it is not congested, or is closed."""
        ...

    def request(self, frame: Sequence[Part]) -> asyncio.Future[memoryview]:
        """Send header and body; the future holds the reply's, or a ``ConnectionLostError``."""
        ...

    def exchange(self, frame: Sequence[Part], told: Told) -> None:
        """Like ``request``, for who asks often: ``told`` is called as soon as the reply is there.

        Never before this returns.  A reply of less than ``LENT_BYTES`` may be gone afterwards.
        """
        ...

    def send(self, frame: Sequence[Part]) -> None:
        """Send a request that the broker does not answer."""
        ...

    def close(self) -> None:
        """End the connection now and fail whoever waits."""
        ...


def tell_when_done(reply: asyncio.Future[memoryview], told: Told) -> None:
    """``exchange`` for transports that have a future for each reply."""
    reply.add_done_callback(lambda done: told(done.exception() or done.result()))  # type: ignore[arg-type]


Connect = Callable[[Address], Awaitable[Transport]]
"""How a client gets a transport to an address; raises ``OSError`` where nobody listens."""


Allocate = Callable[[int], memoryview]
"""Memory for a reply of that many bytes; what it holds does not matter."""


def _fresh(size_bytes: int) -> memoryview:
    return memoryview(bytearray(size_bytes))


async def connect_tcp(address: Address, allocate: Allocate = _fresh) -> Transport:
    """Open a TCP connection; ``allocate`` gives the memory of large replies."""
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(
        lambda: TcpTransport(address, allocate=allocate), address.host, address.port
    )
    return protocol


class TcpTransport(asyncio.BufferedProtocol):
    """Frames over a TCP socket.

    Bytes arrive in a scratch buffer; once a frame is longer than what the scratch holds, the
    rest of it is received straight into the frame's own memory.
    """

    def __init__(
        self,
        address: Address,
        reply_limit_bytes: int = _REPLY_LIMIT_BYTES,
        allocate: Allocate = _fresh,
    ) -> None:
        self._address = address
        self._allocate = allocate
        self._limit_bytes = reply_limit_bytes
        self._waiting: deque[Told | asyncio.Future[memoryview]] = deque()
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._filled = 0
        self._frame: memoryview | None = None
        self._received = 0
        self._socket: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._fault: Exception | None = None
        self._drained = asyncio.Event()
        self._drained.set()

    # --- what the connection calls ----------------------------------------------------------

    @property
    def closed(self) -> bool:
        """True before the connection is made and after it is lost."""
        return self._socket is None or self._socket.is_closing()

    @property
    def congested(self) -> bool:
        """True from ``pause_writing`` to ``resume_writing``."""
        return not self._drained.is_set()

    async def drained(self) -> None:
        """Return once the socket takes more, or is closed."""
        await self._drained.wait()

    def request(self, frame: Sequence[Part]) -> asyncio.Future[memoryview]:
        """Send a frame whose reply the future will hold."""
        reply: asyncio.Future[memoryview] = self._loop.create_future()
        if self.closed:
            reply.set_exception(self._lost())
        else:
            self._waiting.append(reply)
            self.send(frame)
        return reply

    def exchange(self, frame: Sequence[Part], told: Told) -> None:
        """Send a frame whose reply is told without a turn of the loop in between.

        Such frames are short: one write of all is cheaper than one of parts.
        """
        open_socket = self._socket
        if open_socket is None or open_socket.is_closing():
            self._loop.call_soon(told, self._lost())
        else:
            self._waiting.append(told)
            open_socket.write(b"".join(cast("list[bytes]", framed(frame))))

    def send(self, frame: Sequence[Part]) -> None:
        """Send a frame that has no reply."""
        if self._socket is not None:
            self._socket.writelines(cast("list[bytes]", framed(frame)))

    def close(self) -> None:
        """Drop the connection, unsent bytes included."""
        if self._socket is not None:
            self._socket.abort()
        self._fail_waiting()

    # --- what the event loop calls ----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the socket and ask the system to notice a vanished peer."""
        self._socket = cast(asyncio.Transport, transport)
        plain: socket.socket | None = transport.get_extra_info("socket")
        if plain is not None:
            with contextlib.suppress(OSError):
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        if self._frame is not None:
            return self._frame[self._received :]
        return self._scratch[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take in ``nbytes`` that now stand in the buffer."""
        if self._frame is None:
            self._filled += nbytes
            self._take_frames()
            return
        self._received += nbytes
        if self._received == len(self._frame):
            whole, self._frame = self._frame, None
            self._deliver(whole)

    def pause_writing(self) -> None:
        """The socket is behind."""
        self._drained.clear()

    def resume_writing(self) -> None:
        """The socket has caught up."""
        self._drained.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail whoever waits."""
        self._fault = self._fault or exc
        self._drained.set()
        self._fail_waiting()

    # --- frames -----------------------------------------------------------------------------

    def _take_frames(self) -> None:
        """Deliver the whole frames in the scratch; begin the memory of one that is not."""
        scratch, at, end = self._scratch, 0, self._filled
        while end - at >= LENGTH_BYTES:
            try:
                length = payload_bytes(scratch, at, self._limit_bytes)
            except MalformedFrameError as fault:
                self._fault = fault
                self.close()
                return
            start = at + LENGTH_BYTES
            if start + length > end:
                if start + length > at + _SCRATCH_BYTES:
                    self._begin_frame(length, scratch[start:end])
                    at = end
                break
            self._deliver(scratch[start : start + length], lent=True)
            at = start + length
        if at:
            left = bytes(scratch[at:end])
            scratch[: len(left)] = left
            self._filled = len(left)

    def _begin_frame(self, length: int, beginning: memoryview) -> None:
        self._frame = self._allocate(length)
        self._frame[: len(beginning)] = beginning
        self._received = len(beginning)

    def _deliver(self, reply: memoryview, *, lent: bool = False) -> None:
        if not self._waiting:
            self._fault = MalformedFrameError("a reply that nobody asked for")
            self.close()
            return
        told = self._waiting.popleft()
        if not isinstance(told, asyncio.Future):
            told(reply)
        elif not told.done():
            told.set_result(memoryview(bytes(reply)) if lent else reply)

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for told in waiting:
            if not isinstance(told, asyncio.Future):
                self._loop.call_soon(told, self._lost())
            elif not told.done():
                told.set_exception(self._lost())

    def _lost(self) -> ConnectionLostError:
        cause = f": {self._fault}" if self._fault else ""
        return ConnectionLostError(f"the connection to {self._address} was lost{cause}")
