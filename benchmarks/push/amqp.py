"""RabbitMQ, by AMQP 0-9-1: each subscriber has a queue of its own, bound to its stream's exchange.

Queues and messages are transient and deliveries need no acknowledgement: the least that RabbitMQ's
push can do.  A shared queue is acknowledged, as work queues are.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

from benchmarks.push.dialects import Due, connect

_METHOD, _HEADER, _BODY, _END = 1, 2, 3, b"\xce"
_PREFETCH, _ACK_EVERY = 100, 10
_FRAME = struct.Struct(">BHI")
_QUEUE = "push"


class Amqp:
    """A connection and a channel for every subscriber."""

    def __init__(self, *, shared: bool = False) -> None:
        self._shared = shared

    def prepare(self, port: int, streams: int) -> None:
        """An exchange for each stream, or the queue that all share."""
        with _opened(port) as connection:
            if self._shared:
                _ask(connection, 1, 50, 10, _declare_queue(_QUEUE, exclusive=False))
                return
            for stream in range(streams):
                name = _short(f"push-{stream}")
                given = b"\0\0" + name + _short("fanout") + b"\0" + bytes(4)
                _ask(connection, 1, 40, 10, given)

    def subscribe(self, port: int, stream: int) -> tuple[socket.socket, bytes]:
        """Declare and bind a queue, and consume from it."""
        connection = _opened(port)
        name = _QUEUE
        if self._shared:
            _ask(connection, 1, 60, 10, struct.pack(">IHB", 0, _PREFETCH, 0))
        else:
            told = _ask(connection, 1, 50, 10, _declare_queue("", exclusive=True))
            name = told[1 : 1 + told[0]].decode()
            bound = (
                b"\0\0" + _short(name) + _short(f"push-{stream}") + _short("") + b"\0" + bytes(4)
            )
            _ask(connection, 1, 50, 20, bound)
        flags = 0 if self._shared else 2  # no-ack
        consume = b"\0\0" + _short(name) + _short("") + bytes([flags]) + bytes(4)
        _ask(connection, 1, 60, 20, consume)
        return connection, b""

    def answer(self, received: bytes, messages: int, before: int) -> bytes:
        """One acknowledgement for ten; tags count from one, as messages do."""
        count = before + messages
        if not self._shared or count // _ACK_EVERY == before // _ACK_EVERY:
            return b""
        return _method(1, 60, 80, struct.pack(">QB", count, 1))

    def publisher(self, port: int) -> AmqpPublisher:
        """One connection and channel."""
        return AmqpPublisher(port, shared=self._shared)


class AmqpPublisher:
    """Publishes without confirms."""

    def __init__(self, port: int, *, shared: bool) -> None:
        self._connection = _opened(port)
        self._shared = shared

    def publish(self, due: Sequence[Due]) -> None:
        """All that are due in one write."""
        self._connection.sendall(b"".join(self._frames(to, one) for to, one in due))

    def settle(self) -> None:
        """Anything that is answered: it comes behind all that was published."""
        _ask(self._connection, 1, 60, 10, struct.pack(">IHB", 0, 0, 0))

    def _frames(self, stream: int, message: bytes) -> bytes:
        where = _short("") + _short(_QUEUE) if self._shared else _short(f"push-{stream}") + b"\0"
        header = struct.pack(">HHQH", 60, 0, len(message), 0)
        return b"".join(
            (
                _method(1, 60, 40, b"\0\0" + where + b"\0"),
                _framed(_HEADER, 1, header),
                _framed(_BODY, 1, message),
            )
        )


def _opened(port: int) -> socket.socket:
    """A connection with channel 1 open, as guest, without heartbeats."""
    connection = connect(port)
    connection.sendall(b"AMQP\x00\x00\x09\x01")
    _expect(connection, 10, 10)
    response = b"\0guest\0guest"
    given = bytes(4) + _short("PLAIN") + struct.pack(">I", len(response)) + response
    connection.sendall(_method(0, 10, 11, given + _short("en_US")))
    channels, frame_bytes, _ = struct.unpack(">HIH", _expect(connection, 10, 30)[:8])
    connection.sendall(_method(0, 10, 31, struct.pack(">HIH", channels, frame_bytes, 0)))
    _ask(connection, 0, 10, 40, _short("/") + b"\0\0")
    _ask(connection, 1, 20, 10, b"\0")
    return connection


def _ask(connection: socket.socket, channel: int, kind: int, method: int, given: bytes) -> bytes:
    connection.sendall(_method(channel, kind, method, given))
    return _expect(connection, kind, method + 1)


def _expect(connection: socket.socket, kind: int, method: int) -> bytes:
    """The arguments of the method that comes next, which must be this one."""
    _, _, size = _FRAME.unpack(_exactly(connection, _FRAME.size))
    payload = _exactly(connection, size + 1)[:-1]
    told = struct.unpack(">HH", payload[:4])
    if told != (kind, method):
        raise ConnectionError(f"{told} came instead of {(kind, method)}: {payload[4:]!r}")
    return payload[4:]


def _exactly(connection: socket.socket, size: int) -> bytes:
    gathered = b""
    while len(gathered) < size:
        more = connection.recv(size - len(gathered))
        if not more:
            raise ConnectionError("RabbitMQ closed the connection")
        gathered += more
    return gathered


def _method(channel: int, kind: int, method: int, given: bytes) -> bytes:
    return _framed(_METHOD, channel, struct.pack(">HH", kind, method) + given)


def _framed(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + _END


def _declare_queue(name: str, *, exclusive: bool) -> bytes:
    return b"\0\0" + _short(name) + bytes([4 if exclusive else 0]) + bytes(4)


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()
