"""Connections of Kafka's protocol over a world's network: the same frames, no sockets.

``listening`` lets a node's broker be reached under the node's name, ``connecting`` is what a client
on a node, or another broker, gets its transports from.  Frames pass the dispatcher that a
listener's clients pass, each in a turn of the node that gets it.  A connection that breaks fails
whoever waits on it some time later, with what was under way done or not.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from waystation.client.bootstrap import Address
from waystation.client.errors import ConnectionLostError
from waystation.client.transport import Connect, Told, Transport, tell_when_done
from waystation.node.inprocess import InProcessTransport
from waystation.testing.network import End, Network
from waystation.wire.schema import Part

__all__ = ["SimulatedTransport", "connecting", "listening"]


class SimulatedTransport:
    """The client's end."""

    def __init__(self, end: End, address: Address) -> None:
        self._end = end
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[memoryview]] = deque()
        end.on_message, end.on_close = self._received, self._lost

    @property
    def closed(self) -> bool:
        """True once nothing can be sent any more, as far as this end knows."""
        return not self._end.open

    @property
    def congested(self) -> bool:
        """Never: simulations send little."""
        return False

    async def drained(self) -> None:
        """At once."""

    def request(self, frame: Sequence[Part]) -> asyncio.Future[memoryview]:
        """Send a frame whose reply the future will hold."""
        reply: asyncio.Future[memoryview] = self._loop.create_future()
        if self.closed:
            reply.set_exception(self._error())
        else:
            self._waiting.append(reply)
            self.send(frame)
        return reply

    def exchange(self, frame: Sequence[Part], told: Told) -> None:
        """Likewise; ``told`` hears of the reply."""
        tell_when_done(self.request(frame), told)

    def send(self, frame: Sequence[Part]) -> None:
        """Send a frame that has no reply."""
        self._end.send(b"".join(cast("Sequence[bytes]", frame)))

    def close(self) -> None:
        """Hang up and fail whoever waits."""
        self._end.close()
        self._lost()

    def _received(self, reply: bytes) -> None:
        waiting = self._waiting.popleft()
        if not waiting.done():
            waiting.set_result(memoryview(reply))

    def _lost(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for reply in waiting:
            if not reply.done():
                reply.set_exception(self._error())
                reply.exception()

    def _error(self) -> ConnectionLostError:
        return ConnectionLostError(f"the connection to {self._address} was lost")


def connecting(network: Network, source: str) -> Connect:
    """How whoever runs on ``source`` reaches others, by the names of their nodes."""

    async def connect(address: Address) -> Transport:
        # There and back: only then is it known that somebody answers.
        there, back = network.faults(source, address.host), network.faults(address.host, source)
        await asyncio.sleep(network.delay_s(there) + network.delay_s(back))
        end = network.connect(source, address.host)
        if end.broken:
            end.close()
            raise ConnectionRefusedError(f"nobody answers at {address}")
        return SimulatedTransport(end, address)

    return connect


def listening(network: Network, name: str, inside: Callable[[], InProcessTransport | None]) -> None:
    """Let ``inside`` serve who connects to ``name``; it gives nothing while nobody listens."""
    network.listen(name, lambda end: _accept(end, inside))


def _accept(end: End, inside: Callable[[], InProcessTransport | None]) -> None:
    """Each frame is served in a turn of the server's own; the first one makes its transport."""
    served: InProcessTransport | None = None

    def received(frame: bytes) -> None:
        nonlocal served
        if served is None:
            served = inside()
            if served is None:
                end.close()
                return
            served.when_closed(end.close)
            end.on_close = served.close
        served.request([frame]).add_done_callback(answered)

    def answered(reply: asyncio.Future[memoryview]) -> None:
        if not reply.cancelled() and reply.exception() is None:
            end.send(bytes(reply.result()))

    end.on_message = received
