"""Applies a long log without holding up the loop.

Replay is work of seconds in a process that answers in microseconds: every 2 ms the others get
their turn.  Several replays side by side would each take their 2 ms of every turn, so whoever
has many does them one after the other.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from waystation.runtime.clock import Clock

R = TypeVar("R")

SLICE_S: Final = 0.002
_RECORDS_PER_LOOK: Final = 64


async def replay(
    records: Iterable[R], apply: Callable[[R], None], clock: Clock, slice_s: float = SLICE_S
) -> int:
    """Apply all records in order; how many there were.

    ``records`` is drawn from within the slices too, so that decoding is part of them.

    HOT: once per record of a machine's log (tests/broker/test_load.py has the figures).
    """
    count, until_s = 0, clock.monotonic() + slice_s
    for record in records:
        apply(record)
        count += 1
        if count % _RECORDS_PER_LOOK == 0 and clock.monotonic() >= until_s:
            await asyncio.sleep(0)
            until_s = clock.monotonic() + slice_s
    return count
