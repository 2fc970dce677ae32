"""When a client is read from: while there is no reason against it.

Each reason is one bit.  The socket is paused with the first reason and read again when the last
is gone, not at once but in the loop's next round, so that whoever opens the gate is never in the
middle of the requests that come through it.
"""

import asyncio
from collections.abc import Callable
from typing import Final

TURN_OVER: Final = 1
"""It had its share of this round of the loop; the gate opens again by itself."""
OWED_TOO_MANY: Final = 2
NOT_TAKING: Final = 4
NO_MEMORY: Final = 8
LEAVING: Final = 32
FINISHING: Final = 64
SAYING_GOODBYE: Final = 128
CLOSED: Final = 256
GATHERING: Final = 512
"""Its replies take their time: what it sends meanwhile is read in one go."""


class Gate:
    """The reading side of one transport."""

    __slots__ = ("_go_on", "_is_reading", "_is_scheduled", "_loop", "_transport", "reasons")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        go_on: Callable[[], None],
    ) -> None:
        """``go_on`` is called before the socket is read again, and may find a new reason."""
        self._loop = loop
        self._transport = transport
        self._go_on = go_on
        self._is_reading = True
        self._is_scheduled = False
        self.reasons = 0

    def shut(self, reason: int) -> None:
        """Stop reading because of ``reason``."""
        self.reasons |= reason
        if self._is_reading and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()
        if reason == TURN_OVER:
            self._open_soon()

    def open(self, reason: int) -> None:
        """Drop ``reason``, and go on if it was the last."""
        self.reasons &= ~reason
        if not self.reasons & ~TURN_OVER:
            self._open_soon()

    def read(self) -> None:
        """Read from the socket, whatever there is against it."""
        if not self._is_reading and not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()

    def _open_soon(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_scheduled = False
        self.reasons &= ~TURN_OVER
        if not self.reasons:
            self._go_on()
        if not self.reasons:
            self.read()
