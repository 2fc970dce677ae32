"""Positions in a log and points in time.

Ranges of offsets are half-open: ``[start, end)``; an "end" is the offset the next record gets.
"""

from typing import NewType

Offset = NewType("Offset", int)
Millis = NewType("Millis", int)

NO_OFFSET = Offset(-1)
NO_TIMESTAMP = Millis(-1)
