"""Whether a peer takes what it was sent, however slowly.

A line may be slow, and what is sent large: who takes ``STEP_BYTES`` of it within the time that a
request may take is there, and reads.  Who takes less costs a connection for nothing.
"""

import asyncio
from typing import Final

__all__ = ["STEP_BYTES", "Unsent"]

STEP_BYTES: Final = 16 << 10


class Unsent:
    """How much of what a connection was given still waits for its peer."""

    __slots__ = ("_bytes",)

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._bytes = transport.get_write_buffer_size()

    def moves(self, transport: asyncio.WriteTransport) -> bool:
        """Whether another step of it was taken since this was last true."""
        left = transport.get_write_buffer_size()
        moves = self._bytes - left >= STEP_BYTES
        if moves or left > self._bytes:
            self._bytes = left
        return moves
