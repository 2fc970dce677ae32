"""NATS: a subject per stream; subscribers of a shared one form a queue group."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from benchmarks.push.dialects import Due, connect, read_until

_CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
_PING, _PONG = b"PING\r\n", b"PONG\r\n"


class Nats:
    """Core NATS, which neither stores nor asks for acknowledgements."""

    def __init__(self, *, shared: bool = False) -> None:
        self._group = b" shared" if shared else b""

    def prepare(self, port: int, streams: int) -> None:
        """Subjects need no making."""

    def subscribe(self, port: int, stream: int) -> tuple[socket.socket, bytes]:
        """SUB, and a PING: its answer says that the subscription stands."""
        connection = connect(port)
        connection.sendall(b"%sSUB push.%d%s 1\r\n%s" % (_CONNECT, stream, self._group, _PING))
        return connection, read_until(connection, _PONG)[1]

    def answer(self, received: bytes, messages: int, before: int) -> bytes:
        """PONG, if asked."""
        return _PONG if _PING in received else b""

    def publisher(self, port: int) -> NatsPublisher:
        """One connection."""
        return NatsPublisher(port)


class NatsPublisher:
    """Publishes on one connection; the server confirms nothing by itself."""

    def __init__(self, port: int) -> None:
        self._connection = connect(port)
        self._connection.sendall(_CONNECT + _PING)
        read_until(self._connection, _PONG)

    def publish(self, due: Sequence[Due]) -> None:
        """All that are due in one write."""
        self._connection.sendall(
            b"".join(b"PUB push.%d %d\r\n%s\r\n" % (to, len(one), one) for to, one in due)
        )

    def settle(self) -> None:
        """A PING behind everything."""
        self._connection.sendall(_PING)
        read_until(self._connection, _PONG)
