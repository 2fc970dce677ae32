"""Memory that is handed out and used again once nobody looks at it any more.

Who is given a buffer holds a view of it for as long as it is needed, and Python refuses to
change the size of a buffer of which there is a view.  So nobody has to say that they are done,
and nobody who is not can have the memory changed under their hands.
"""

from array import array
from collections.abc import Iterable

__all__ = ["Lender", "came_back"]

_MOST_LENT = 3


def came_back(buffers: "Iterable[bytearray | array[int]]") -> bool:
    """Whether no view of any of ``buffers`` is left; they stay as they are."""
    try:
        for buffer in buffers:
            buffer.append(0)
            buffer.pop()
    except BufferError:
        return False
    return True


class Lender:
    """Lends views of up to ``usual_bytes`` and uses their memory again; larger ones are new."""

    __slots__ = ("_lent", "_usual_bytes")

    def __init__(self, usual_bytes: int) -> None:
        self._usual_bytes = usual_bytes
        self._lent: list[bytearray] = []

    def __call__(self, size_bytes: int) -> memoryview:
        """A view of so many bytes; what is in them does not matter."""
        if size_bytes > self._usual_bytes:
            return memoryview(bytearray(size_bytes))
        for buffer in self._lent:
            if came_back([buffer]):
                break
        else:
            buffer = bytearray(self._usual_bytes)
            self._lent = [*self._lent[1 - _MOST_LENT :], buffer]
        return memoryview(buffer)[:size_bytes]
