"""Where the bytes of one connection wait until they are whole frames.

A connection with nothing half-received owns no buffer: it reads into one that all connections
of the loop share, because a read and the handling of what it brought are one uninterrupted
step.  What is left over afterwards is kept in one of two ways:

- the start of a small frame, or whole frames that may not be handled yet, are copied aside and
  put in front of the next read;
- a large frame gets a buffer of its own, which grows with what arrives, and the socket is read
  into it up to the frame's last byte, so that large frames are not copied again.

``view[at:end]`` is what has not been handled.  It changes place with every read: whoever needs
bytes of it for longer copies them.
"""

from collections.abc import Callable
from typing import Final

from waystation.server.memory import Buffer, Claim, RequestMemory

SMALL_FRAME_BYTES: Final = 128 << 10
_WINDOW_MIN: Final = 32 << 10
_WINDOW_MAX: Final = 256 << 10
_AFTER_LARGE_BYTES: Final = 4 << 10
_FIRST_GRANT_BYTES: Final = 2 << 20

_NOTHING = memoryview(bytearray())


def shared_buffer() -> memoryview:
    """The buffer that the connections of one loop read into."""
    return memoryview(bytearray(_WINDOW_MAX + SMALL_FRAME_BYTES))


class Inbox:
    """The receiving side of one connection."""

    __slots__ = (
        "_claim",
        "_filled",
        "_large",
        "_memory",
        "_need",
        "_shared",
        "_window",
        "at",
        "end",
        "view",
    )

    def __init__(self, shared: memoryview, memory: RequestMemory) -> None:
        self._shared = shared
        self._memory = memory
        self._window = _WINDOW_MIN
        self._filled = False
        self._large: Buffer | None = None
        self._need = 0
        self._claim: Claim | None = None
        self.view = _NOTHING
        self.at = self.end = 0

    def room(self) -> memoryview:
        """Where the next read goes.  HOT: once per read."""
        if self._large is not None:
            return self.view[self.end : self._need]
        kept = self.end - self.at
        if kept:
            self._shared[:kept] = self.view[self.at : self.end]
            return self._shared[kept : kept + self._window]
        return self._shared[: self._window]

    def received(self, nbytes: int) -> bool:
        """Note what a read brought; true if it may have left more in the socket."""
        if self._large is not None:
            self.end += nbytes
            self._filled = self.end >= min(self._need, len(self._large))
        else:
            self.end = self.end - self.at + nbytes
            self.at = 0
            self.view = self._shared
            self._filled = nbytes >= self._window
        return self._filled

    def is_growing(self) -> bool:
        """True while a large frame is incomplete; there is nothing to handle then."""
        if self._large is None or self.end >= self._need:
            return False
        if self.end == len(self._large):
            self._move_to(self._memory.borrow(min(self._need, 2 * self.end)))
        return True

    def settle(self, need: int, wake: Callable[[], None]) -> bool:
        """Keep what was not handled; false if a large frame must wait for memory first.

        ``need`` is what the incomplete frame at ``at`` comes to, as far as is known, or 0 where
        whole frames wait.  ``wake`` is called when there is memory.
        """
        if need > SMALL_FRAME_BYTES and self._large is None:
            return self._begin_large(need, wake)
        self._adapt_window(need)
        if self.at == self.end:
            self.drop()
        elif self.view is self._shared or (need and self._large is None and self.at):
            self._set_aside()
        return True

    def drop(self) -> None:
        """Forget everything and give the memory back."""
        if self._large is not None:
            self._memory.give_back(self._large)
            self._large = None
        if self._claim is not None:
            claim, self._claim = self._claim, None
            self._memory.release(claim)
        self.view = _NOTHING
        self.at = self.end = self._need = 0

    @property
    def claimed_bytes(self) -> int:
        """How much of the memory for large requests this connection holds from others."""
        return self._claim.nbytes if self._claim is not None and self._claim.admitted else 0

    def _adapt_window(self, need: int) -> None:
        """Read more at a time from who fills the window, less from who is ahead of its turn."""
        if not need and self.at < self.end:
            self._window = _WINDOW_MIN
        elif self._filled and self._large is None:
            self._window = min(_WINDOW_MAX, max(_WINDOW_MIN, 2 * self._window))

    def _begin_large(self, need: int, wake: Callable[[], None]) -> bool:
        if self._claim is None:
            self._claim = self._memory.claim(need, wake)
        if not self._claim.admitted:
            if self.view is self._shared:
                self._set_aside()
            return False
        self._need = need
        self._move_to(self._memory.borrow(min(need, _FIRST_GRANT_BYTES)))
        # Another large frame is likely to follow: find out its length from a short read, so
        # that little of it has to be moved.
        self._window = _AFTER_LARGE_BYTES
        return True

    def _move_to(self, buffer: Buffer) -> None:
        kept = self.end - self.at
        view = memoryview(buffer)
        view[:kept] = self.view[self.at : self.end]
        if self._large is not None:
            self._memory.give_back(self._large)
        self._large, self.view = buffer, view
        self.at, self.end = 0, kept

    def _set_aside(self) -> None:
        self.view = memoryview(bytearray(self.view[self.at : self.end]))
        self.at, self.end = 0, len(self.view)
