"""How fast a replay may send: a rate on average, in bursts of one chunk.

A chunk is seen as a whole when it is committed, so that it is the burst that readers see.
Chunks are therefore small where the rate is, and wait for each other.
"""

from typing import NamedTuple

__all__ = ["Pace"]

_BURST_S = 5.0


class Pace(NamedTuple):
    """``rate`` messages per second since ``began_s``; 0 is no limit."""

    rate: float
    began_s: float

    def most(self, asked: int) -> int:
        """How many messages a chunk may have, if the user would have as many as ``asked``."""
        return min(asked, max(int(self.rate * _BURST_S), 1)) if self.rate else asked

    def wait_s(self, sent: int, now_s: float) -> float:
        """How long to wait after so many messages."""
        return max(self.began_s + sent / self.rate - now_s, 0.0) if self.rate else 0.0
