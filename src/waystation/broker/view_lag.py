"""How many messages a view shows from an offset on: what its readers have before them.

Counting looks through the log as reading does (``scanning.py``), within a bound, and passes what is
known to hold no match.  What a transaction took back is counted too, until it is read.
"""

import asyncio
from typing import Final, NamedTuple

from waystation.broker.scanning import Scan, Scanner
from waystation.broker.views import ViewPartition
from waystation.filters.narrowing import Narrowed
from waystation.model.errors import OffsetOutOfRangeError
from waystation.model.offsets import Offset
from waystation.records.batch import rows_of
from waystation.records.header import peek

_BYTES_MOST: Final = 256 << 20


class Count(NamedTuple):
    """The matches in ``[offset asked for, next_offset)``; ``end`` is where readers get to."""

    matches: int
    next_offset: Offset
    end: Offset


class _Counting(Scan):
    """Counts from an offset on."""

    __slots__ = ("_max_bytes", "_offset", "_rests", "matches")

    def __init__(self, part: ViewPartition, offset: Offset, max_bytes: int) -> None:
        super().__init__(part, offset, stable_only=False)
        self._offset = offset
        self._max_bytes = min(max_bytes, _BYTES_MOST)
        self._rests: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.matches = 0

    @property
    def goes_on(self) -> bool:
        """Whether there is more, and it may be looked at."""
        return self.is_behind and self.scanned_bytes < self._max_bytes

    def took(self, narrowed: Narrowed, behind: Offset) -> None:
        """Count what matches, but not what lies before the offset in its batch."""
        self.matches += narrowed.matches
        if narrowed.parts:
            header = peek(narrowed.parts[0])
            if header.base_offset < self._offset and not header.is_control:
                early = [row for row in rows_of(narrowed.parts[0]) if row[0] < self._offset]
                self.matches -= len(early)
        self.at = max(self.at, behind)

    def rested(self) -> None:
        """Let the one who asked know."""
        if not self._rests.done():
            self._rests.set_result(None)

    async def rest(self) -> None:
        """Wait until it does."""
        await self._rests
        if self.error is not None:
            raise self.error


async def counted(scanner: Scanner, part: ViewPartition, offset: Offset, max_bytes: int) -> Count:
    """Count from ``offset``, or from where the log begins, on."""
    log, end = part.base.log, part.base.high_watermark
    if offset < 0 or offset > log.log_end:
        raise OffsetOutOfRangeError(offset, log.log_start, log.log_end)
    counting = _Counting(part, max(offset, log.log_start), max_bytes)
    scanner.start(counting)
    try:
        await counting.rest()
    finally:
        counting.given_up = True
    return Count(counting.matches, counting.at, max(end, counting.at))
