"""Waystation's push over HTTP: events, WebSockets with credits, and queues over WebSockets.

Streams are partitions of one topic.  Messages are published by POST, one by one or all that are
due together, and are answered once they are stored as the topic asks.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import struct
import urllib.request
from collections import deque
from collections.abc import Callable, Sequence

from benchmarks.push.dialects import Due, connect, read_until

_CREDIT, _MORE_AT = 100, 50
_TEXT, _MASKED, _LONG = 0x81, 0x80, 126
_ID = re.compile(rb'"type":"message","id":"([^"]+)"')
_CONNECTIONS = 64


class EventStream:
    """Server-sent events: one response without an end."""

    topic = "push-events"

    def prepare(self, port: int, streams: int) -> None:
        """One topic."""
        created = {"name": self.topic, "partitions": streams}
        _call(port, "/v1/topics", created)

    def subscribe(self, port: int, stream: int) -> tuple[socket.socket, bytes]:
        """Subscribed once the answer begins."""
        return self._begun(port, f"partition={stream}")

    def _begun(self, port: int, query: str) -> tuple[socket.socket, bytes]:
        connection = connect(port)
        path = f"/v1/topics/{self.topic}/events?{query}"
        connection.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        header, behind = read_until(connection, b"\r\n\r\n")
        _check(header, b"HTTP/1.1 200")
        while b"id: " not in behind:  # it begins by saying where it stands
            behind += connection.recv(65_536)
        return connection, behind

    def answer(self, received: bytes, messages: int, before: int) -> bytes:
        """Nothing: who reads has taken."""
        return b""

    def publisher(self, port: int) -> Posting:
        """POST."""
        return Posting(port, f"/v1/topics/{self.topic}/messages")


class KeyStream(EventStream):
    """Server-sent events of one key: everybody reads one topic, and chooses its own messages."""

    topic = "push-keys"

    def prepare(self, port: int, streams: int) -> None:
        """One topic of one partition, for any number of keys."""
        super().prepare(port, 1)

    def subscribe(self, port: int, stream: int) -> tuple[socket.socket, bytes]:
        """Likewise."""
        return self._begun(port, f"where=key%20%3D%20'{_key(stream)}'")

    def publisher(self, port: int) -> Posting:
        """POST, by key."""
        return Posting(port, f"/v1/topics/{self.topic}/messages", lambda to: {"key": _key(to)})


def _key(stream: int) -> str:
    return f"customer-{stream}"


class Socket(EventStream):
    """A WebSocket; more credit goes out when half of it is used."""

    topic = "push-socket"

    def subscribe(self, port: int, stream: int) -> tuple[socket.socket, bytes]:
        """Subscribed once the node says that it is ready."""
        path = f"/v1/topics/{self.topic}/socket?partition={stream}&credit={_CREDIT}"
        return _websocket(port, path)

    def answer(self, received: bytes, messages: int, before: int) -> bytes:
        """Credit for as many as came since the last."""
        if (before + messages) // _MORE_AT == before // _MORE_AT:
            return b""
        return _MORE


class QueueSocket(Socket):
    """A queue's WebSocket: every message is acknowledged by its id."""

    topic = "push-queue"

    def prepare(self, port: int, streams: int) -> None:
        """A queue of one partition."""
        _call(port, "/v1/queues", {"name": self.topic, "partitions": streams})

    def subscribe(self, port: int, stream: int) -> tuple[socket.socket, bytes]:
        """Likewise."""
        return _websocket(port, f"/v1/queues/{self.topic}/socket?credit={_CREDIT}")

    def answer(self, received: bytes, messages: int, before: int) -> bytes:
        """All ids that came, and credit as for topics."""
        ids = [one.decode() for one in _ID.findall(received)]
        acks = [frame({"type": "ack", "ids": ids})] if ids else []
        return b"".join([*acks, super().answer(received, messages, before)])


class Posting:
    """POSTs over connections that are kept; never waits for an answer unless all are waiting."""

    def __init__(
        self,
        port: int,
        path: str,
        place: Callable[[int], dict[str, object]] = lambda to: {"partition": to},
    ) -> None:
        self._port, self._path, self._place = port, path, place
        self._free: list[socket.socket] = []
        self._waiting: deque[socket.socket] = deque()

    def publish(self, due: Sequence[Due]) -> None:
        """One message by itself, several as a batch."""
        messages = [{"value": one.decode(), **self._place(to)} for to, one in due]
        body: object = {"messages": messages} if len(messages) > 1 else messages[0]
        path = f"{self._path}/batch" if len(messages) > 1 else self._path
        self._gather()
        if not self._free and len(self._waiting) < _CONNECTIONS:
            self._free.append(connect(self._port))
        if not self._free:
            self._take(self._waiting.popleft())
        connection = self._free.pop()
        connection.sendall(_request("POST", path, body))
        self._waiting.append(connection)

    def settle(self) -> None:
        """Take all answers."""
        while self._waiting:
            self._take(self._waiting.popleft())

    def _gather(self) -> None:
        """Take the answers that are there."""
        for connection in list(self._waiting):
            try:
                connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            self._waiting.remove(connection)
            self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        header, body = read_until(connection, b"\r\n\r\n")
        _check(header, b"HTTP/1.1 200")
        length = int(header.lower().partition(b"content-length: ")[2].split()[0])
        while len(body) < length:
            body += connection.recv(65_536)
        self._free.append(connection)


def frame(said: object) -> bytes:
    """A text as a WebSocket client sends it: masked."""
    text = json.dumps(said).encode()
    short = len(text) < _LONG
    length = bytes([_MASKED | len(text)]) if short else struct.pack(">BH", _MASKED | 126, len(text))
    mask = os.urandom(4)
    long_mask = int.from_bytes((mask * (len(text) // 4 + 1))[: len(text)], "big")
    masked = (int.from_bytes(text, "big") ^ long_mask).to_bytes(len(text), "big")
    return bytes([_TEXT]) + length + mask + masked


_MORE = frame({"type": "credit", "messages": _MORE_AT})


def _websocket(port: int, path: str) -> tuple[socket.socket, bytes]:
    connection = connect(port)
    key = base64.b64encode(os.urandom(16)).decode()
    connection.sendall(
        f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\n"
        "upgrade: websocket\r\nsec-websocket-version: 13\r\n"
        f"sec-websocket-key: {key}\r\n\r\n".encode()
    )
    header, behind = read_until(connection, b"\r\n\r\n")
    _check(header, b"HTTP/1.1 101")
    while b'"ready"' not in behind:
        behind += connection.recv(65_536)
    return connection, behind


def _request(method: str, path: str, body: object) -> bytes:
    told = json.dumps(body).encode()
    return (
        f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(told)}\r\n\r\n"
    ).encode() + told


def _call(port: int, path: str, body: object) -> None:
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        answer.read()


def _check(header: bytes, expected: bytes) -> None:
    if not header.startswith(expected):
        raise ConnectionError(f"{expected.decode()} was expected: {header.decode()}")
