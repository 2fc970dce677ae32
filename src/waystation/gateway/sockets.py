"""A WebSocket as its conversation sees it: JSON in, JSON out, one text message each.

A handler checks what it was asked, and returns a ``Conversation``; only then the socket is
accepted, so that whoever asks for something wrong gets the same problem as over HTTP.  Later
problems come as a message ``{"type": "error", ...}``, and the socket closes behind them.

The connection itself is bounded in ``sockets_protocol.py``.
"""

import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from waystation.gateway.bodies import Disconnected, Receive
from waystation.gateway.problems import Problem, refusal
from waystation.gateway.streams import Send, Wire

__all__ = ["Conversation", "ErrorFrame", "Socket", "check_origin", "error_frame", "frame"]

_encode: Final = msgspec.json.Encoder().encode
_LONG: Final = struct.Struct("!BBH")
_LONGEST: Final = struct.Struct("!BBQ")
_TEXT: Final = 0x81
_REASON_BYTES: Final = 120  # RFC 6455 has room for 123

GOING_AWAY: Final = 1001
REFUSED: Final = 1008
BROKEN: Final = 1011


class ErrorFrame(msgspec.Struct, frozen=True, tag="error", tag_field="type", omit_defaults=True):
    """What went wrong; ``ref`` is that of the message which caused it."""

    kind: str
    """Names the kind of the problem; stays the same from version to version."""
    status: int
    detail: str
    field: str | None = None
    remedy: str | None = None
    ref: str | int | None = None


class Socket:
    """One accepted WebSocket."""

    def __init__(self, wire: Wire, receive: Receive, send: Send) -> None:
        self.wire = wire
        self._receive, self._send = receive, send

    async def receive(self) -> bytes:
        """The next message; ``Disconnected`` if none will come."""
        message = await self._receive()
        if message["type"] != "websocket.receive":
            raise Disconnected
        text: str | None = message.get("text")
        return message["bytes"] if text is None else text.encode()

    async def say(self, told: Any) -> None:
        """Send a struct as soon as there is room."""
        if self.wire.is_paused:
            await self.wire.drained()
        self.wire.write(frame(_encode(told)))

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Say good-bye."""
        told = reason.encode()[:_REASON_BYTES].decode(errors="ignore")
        await self._send({"type": "websocket.close", "code": code, "reason": told})


class Conversation(NamedTuple):
    """What happens once the socket is accepted; when ``talk`` returns it is closed."""

    talk: Callable[[Socket], Awaitable[None]]


def frame(content: bytes) -> bytes:
    """A text message as it goes over the wire: servers do not mask, so that all get the same."""
    size = len(content)
    if size < 126:
        return b"\x81%c%s" % (size, content)
    if size < 1 << 16:
        return _LONG.pack(_TEXT, 126, size) + content
    return _LONGEST.pack(_TEXT, 127, size) + content


def check_origin(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a page that was loaded from elsewhere: browsers let any page open any WebSocket."""
    origin, host = headers.get(b"origin"), headers.get(b"host", b"")
    if origin is None or origin.partition(b"://")[2].lower() == host.lower():
        return
    raise refusal(
        403,
        "foreign-origin",
        f"a page of {origin.decode('latin-1')} may not open sockets here",
        field="Origin",
        remedy="serve the page and this node under one address, by a proxy",
    )


def error_frame(problem: Problem, ref: str | int | None = None) -> ErrorFrame:
    """A problem as a message."""
    return ErrorFrame(
        problem.type.rpartition(":")[2],
        problem.status,
        problem.detail,
        problem.field,
        problem.remedy,
        ref,
    )
