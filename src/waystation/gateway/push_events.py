"""Messages as they are pushed: once made, the same bytes for everybody.

The JSON of a message is the same for Server-Sent Events and for WebSockets; what differs is what
stands around it.  A ``Face`` says how.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from waystation.client.message import Message
from waystation.gateway.payloads import StoredMessage, Values, shown
from waystation.gateway.problems import Problem
from waystation.gateway.push_ids import Ids
from waystation.gateway.sockets import frame
from waystation.gateway.streams import chunk

__all__ = ["SOCKET", "SSE", "Face", "events_of", "gap_event", "plain_event", "problem_event"]

_encode: Final = msgspec.json.Encoder().encode


class Gap(msgspec.Struct, frozen=True):
    """Messages that retention has taken before they could be pushed: ``[offset, next_offset)``."""

    partition: int
    offset: int
    next_offset: int


class Face(NamedTuple):
    """How a message goes out."""

    name: str
    event: Callable[[bytes, bytes], bytes]
    """A message, of its id and its JSON."""
    piece: Callable[[bytes], bytes]
    """Several of them as they go over the wire."""
    gap: Callable[[bytes, Gap], bytes]
    beat: Callable[[bytes], bytes]
    """That all is well; the id says how far the subscriber has got meanwhile."""


def _sse(id_: bytes, content: bytes) -> bytes:
    return b"id: %s\ndata: %s\n\n" % (id_, _on_one_line(content))


def _on_one_line(content: bytes) -> bytes:
    """A carriage return stands only between parts of a document, where it means nothing."""
    return content.replace(b"\r", b" ") if b"\r" in content else content


def _sse_gap(id_: bytes, gap: Gap) -> bytes:
    return b"event: gap\nid: %s\ndata: %s\n\n" % (id_, _encode(gap))


def _sse_beat(id_: bytes) -> bytes:
    return chunk(b": still here\nid: %s\n\n" % id_)


def _socket(id_: bytes, content: bytes) -> bytes:
    return frame(b'{"type":"message","id":"%s",%s' % (id_, content[1:]))


def _socket_gap(id_: bytes, gap: Gap) -> bytes:
    return frame(b'{"type":"gap","id":"%s",%s' % (id_, _encode(gap)[1:]))


def _as_it_is(content: bytes) -> bytes:
    return content


SSE: Final = Face("sse", _sse, chunk, _sse_gap, _sse_beat)
SOCKET: Final = Face("socket", _socket, _as_it_is, _socket_gap, lambda _: b"")
"""Of WebSockets the connection itself sees to it that both are still there."""


def events_of(messages: Sequence[Message], ids: Ids, face: Face, values: Values) -> list[bytes]:
    """Each message as it is pushed.  HOT: once per message and format."""
    event, past = face.event, ids.past
    return [
        event(past(one.partition, one.offset), _encode(told))
        for one, told in zip(messages, shown(messages, values), strict=True)
    ]


def plain_event(told: StoredMessage) -> bytes:
    """A message as a server-sent event that has no id."""
    return b"data: %s\n\n" % _on_one_line(_encode(told))


def gap_event(face: Face, id_: str, partition: int, offset: int, next_offset: int) -> bytes:
    """What is missing."""
    return face.gap(id_.encode(), Gap(partition, offset, next_offset))


def problem_event(problem: Problem) -> bytes:
    """Why a stream of events ends."""
    return b"event: error\ndata: %s\n\n" % _encode(problem)
