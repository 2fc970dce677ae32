"""Where the frames of a WebSocket end, without taking them apart.

The library that does take them apart does not tell whether it stands between two messages.  Who
knows that may take a short message that came by itself at once (``sockets_protocol.py``), for
a fifth of what the library needs for it.  Of what is no frame at all nothing is promised: the
library refuses it, and the connection ends.
"""

from typing import Final

from websockets.utils import apply_mask

__all__ = ["FrameWalk", "lone_text"]

_TEXT: Final = 0x81
_MASKED: Final = 0x80
_FINAL: Final = 0x80
_CONTROL: Final = 0x08
_LENGTH_BYTES: Final = {126: 2, 127: 8}
_HEADER, _MASK = 2, 4


def lone_text(data: bytes) -> bytes | None:
    """The text of a short message that ``data`` consists of; ``None`` if it does not.  HOT."""
    if len(data) < _HEADER + _MASK or data[0] != _TEXT:
        return None
    if data[1] >= _MASKED | 126 or len(data) != data[1] - _MASKED + _HEADER + _MASK:
        return None
    return apply_mask(data[_HEADER + _MASK :], data[_HEADER : _HEADER + _MASK])


class FrameWalk:
    """Follows the bytes of a client from the first frame on."""

    __slots__ = ("_head", "_in_message", "_left")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self._in_message = False

    @property
    def is_between(self) -> bool:
        """Whether all messages that began have come whole."""
        return not (self._left or self._head or self._in_message)

    def walk(self, data: bytes) -> None:
        """Go on behind ``data``."""
        at = min(self._left, len(data))
        self._left -= at
        while at < len(data):
            head = self._head + data[at : at + _HEADER + 8 + _MASK]
            size = _header_bytes(head)
            if len(head) < size:
                self._head = head
                return
            at += size - len(self._head)
            self._head = b""
            self._begin(head)
            passed = min(self._left, len(data) - at)
            self._left -= passed
            at += passed

    def _begin(self, head: bytes) -> None:
        if not head[0] & _CONTROL:
            self._in_message = not head[0] & _FINAL
        self._left = _payload_bytes(head)


def _header_bytes(head: bytes) -> int:
    if len(head) < _HEADER:
        return _HEADER
    mask = _MASK if head[1] & _MASKED else 0
    return _HEADER + _LENGTH_BYTES.get(head[1] & ~_MASKED, 0) + mask


def _payload_bytes(head: bytes) -> int:
    short = head[1] & ~_MASKED
    more = _LENGTH_BYTES.get(short)
    return short if more is None else int.from_bytes(head[_HEADER : _HEADER + more], "big")
