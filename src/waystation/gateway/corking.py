"""A connection that is given the head and the body of an answer in one piece.

uvicorn writes one after the other, and each write is a system call and a packet: who waits for a
short answer would be woken for its head, and once more for the rest.
"""

import asyncio
from typing import Final

__all__ = ["Cork"]

_SHORT_BYTES: Final = 64 << 10  # of longer ones another copy costs more than another write


class Cork:
    """What answers are written to instead of their transport."""

    __slots__ = ("_head", "_holds", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None
        self._holds = False
        self.is_closing = transport.is_closing

    def hold(self) -> None:
        """Let what is written next wait for what is written behind it."""
        self._holds = True

    def write(self, content: bytes) -> None:
        """HOT: twice per answer."""
        if self._head is not None:
            head, self._head, self._holds = self._head, None, False
            if len(content) > _SHORT_BYTES:
                self._transport.write(head)
            else:
                content = head + content
        elif self._holds:
            self._head = content
            return
        self._transport.write(content)

    def release(self) -> None:
        """Wait no longer: nothing comes behind the head."""
        self._holds = False
        if self._head is not None:
            self._transport.write(self._head)
            self._head = None

    def close(self) -> None:
        """Close behind what was written."""
        self.release()
        self._transport.close()
