"""Memory for requests that do not fit one read.

A large request is admitted before it gets a buffer, by the length it announces:

1. admitted requests together stay within the limit, but for one that exceeds it alone;
2. who waits is admitted in the order of asking, so that none starves;
3. a buffer grows with what arrives (``inbox.py``): announcing is not taking.

Buffers are mapped, not allocated: a ``bytearray`` is filled with zeros when it is made, which
would make every page of it real.  Those that come back are kept warm for the next large request,
since fresh pages cost more than the bytes in them, until a sweep finds them unused.
"""

import mmap
from collections import deque
from collections.abc import Callable
from typing import Final

_SMALLEST_BYTES: Final = 1 << 17
_WARM_BYTES_MAX: Final = 32 << 20

Buffer = mmap.mmap


class Claim:
    """One large request's place in memory; ``admitted`` once it may take its buffer."""

    __slots__ = ("_wake", "admitted", "nbytes")

    def __init__(self, nbytes: int, wake: Callable[[], None]) -> None:
        self.nbytes = nbytes
        self.admitted = False
        self._wake = wake

    def admit(self) -> None:
        """Let the one who waits go on."""
        self.admitted = True
        self._wake()


class RequestMemory:
    """The claims and buffers of all connections of one listener."""

    __slots__ = ("_free", "_limit_bytes", "_used", "_waiting", "_warm_bytes", "claimed_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.claimed_bytes = 0
        self._waiting: deque[Claim] = deque()
        self._free: dict[int, list[Buffer]] = {}
        self._warm_bytes = 0
        self._used = False

    @property
    def contended(self) -> bool:
        """True while somebody waits for what others hold."""
        return bool(self._waiting)

    def claim(self, nbytes: int, wake: Callable[[], None]) -> Claim:
        """Ask for room for a request of ``nbytes``; ``wake`` is called if it is not there yet."""
        claim = Claim(nbytes, wake)
        if not self._waiting and self._fits(nbytes):
            self.claimed_bytes += nbytes
            claim.admitted = True
        else:
            self._waiting.append(claim)
        return claim

    def release(self, claim: Claim) -> None:
        """The request was handled, or its connection is gone; the next ones may go on."""
        if claim.admitted:
            self.claimed_bytes -= claim.nbytes
        else:
            self._waiting.remove(claim)
        while self._waiting and self._fits(self._waiting[0].nbytes):
            admitted = self._waiting.popleft()
            self.claimed_bytes += admitted.nbytes
            admitted.admit()

    def borrow(self, nbytes: int) -> Buffer:
        """A buffer of at least ``nbytes``, at most a quarter longer, with anything in it."""
        self._used = True
        capacity = _rounded(nbytes)
        free = self._free.get(capacity)
        if free:
            self._warm_bytes -= capacity
            return free.pop()
        return mmap.mmap(-1, capacity, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def give_back(self, buffer: Buffer) -> None:
        """Keep ``buffer`` for the next one, unless enough are kept."""
        if self._warm_bytes + len(buffer) <= _WARM_BYTES_MAX:
            self._warm_bytes += len(buffer)
            self._free.setdefault(len(buffer), []).append(buffer)

    def sweep(self) -> None:
        """Let go of the warm buffers if none was wanted since the last sweep."""
        if not self._used:
            self._free.clear()
            self._warm_bytes = 0
        self._used = False

    def _fits(self, nbytes: int) -> bool:
        return self.claimed_bytes == 0 or self.claimed_bytes + nbytes <= self._limit_bytes


def _rounded(nbytes: int) -> int:
    """Few enough sizes to find a warm buffer among, four to every doubling."""
    step = 1 << max(0, nbytes.bit_length() - 3)
    return max(_SMALLEST_BYTES, -(-nbytes // step) * step)
