"""When a message is due, and which it is: as a pair, and as one number.

Pairs are what everybody speaks of.  What waits in memory by the ten thousand is kept as numbers,
the time before the offset, which sort alike: every garbage collection would look at each pair, and
at each table that holds one, which took up to 50 ms at a time.
"""

from typing import Final

__all__ = ["Due", "packed", "unpacked"]

Due = tuple[int, int]
"""When a message is due, and the offset of its record."""

_OFFSET_BITS: Final = 64
_OFFSETS: Final = (1 << _OFFSET_BITS) - 1


def packed(due: Due) -> int:
    """A pair as one number."""
    return (due[0] << _OFFSET_BITS) + due[1]  # an edge may lie just before the first offset


def unpacked(number: int) -> Due:
    """The pair that a number is."""
    return number >> _OFFSET_BITS, number & _OFFSETS
