"""How each product is subscribed to and published to, in its own protocol, over plain sockets.

A dialect prepares what streams need, opens a socket that is subscribed when it returns, says what
a subscriber answers to what it received (credits, acknowledgements, pongs), and publishes.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Protocol

Due = tuple[int, bytes]
"""The stream that a message goes to, and the message."""

_TIMEOUT_S = 60.0


class Publisher(Protocol):
    """One that publishes."""

    def publish(self, due: Sequence[Due]) -> None:
        """Hand messages over, in order."""

    def settle(self) -> None:
        """Return when all of them were taken, where that is told at all."""


class Dialect(Protocol):
    """One way of one product."""

    def prepare(self, port: int, streams: int) -> None:
        """Make what the streams need."""

    def subscribe(self, port: int, stream: int) -> tuple[socket.socket, bytes]:
        """A socket that receives what is published from now on, and what it received so far."""

    def answer(self, received: bytes, messages: int, before: int) -> bytes:
        """What a subscriber writes back, ``before`` messages it had and ``messages`` more."""

    def publisher(self, port: int) -> Publisher:
        """Who publishes to all streams."""


def connect(port: int) -> socket.socket:
    """A connection without delays of its own."""
    made = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def read_until(connection: socket.socket, end: bytes) -> tuple[bytes, bytes]:
    """All up to and with ``end``, and what came behind it."""
    gathered = b""
    while end not in gathered:
        more = connection.recv(65_536)
        if not more:
            raise ConnectionError(f"the other side closed after {gathered[-300:]!r}")
        gathered += more
    before, found, behind = gathered.partition(end)
    return before + found, behind


def dialects() -> dict[str, Dialect]:
    """All of them, by name."""
    from benchmarks.push.amqp import Amqp
    from benchmarks.push.nats import Nats
    from benchmarks.push.waystation import EventStream, KeyStream, QueueSocket, Socket

    return {
        "sse": EventStream(),
        "sse-key": KeyStream(),
        "websocket": Socket(),
        "queue-socket": QueueSocket(),
        "amqp": Amqp(),
        "amqp-queue": Amqp(shared=True),
        "nats": Nats(),
        "nats-queue": Nats(shared=True),
    }
