"""Applies a long log without holding up the loop.

Replay is work of seconds in a process that answers in microseconds: every 2 ms the others get
their turn.  Several replays side by side would each take their 2 ms of every turn, so whoever
has many does them one after the other.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

from waystation.runtime.clock import Clock

R = TypeVar("R")

TURN_S: Final = 0.002
SLICE: Final = 128
"""How many records are read and applied between two looks at the clock: some 0.3 ms of work."""


async def replay(
    slices: Iterable[Sequence[R]], apply: Callable[[R], None], clock: Clock, turn_s: float = TURN_S
) -> int:
    """Apply all records in order; how many there were.

    ``slices`` are drawn within the turns too, so that decoding is part of them; each should be
    of ``SLICE`` records at most.

    HOT: once per record of a machine's log (tests/broker/test_load.py has the figures).
    """
    count, until_s = 0, clock.monotonic() + turn_s
    for some in slices:
        for record in some:
            apply(record)
        count += len(some)
        if clock.monotonic() >= until_s:
            await asyncio.sleep(0)
            until_s = clock.monotonic() + turn_s
    return count


def sliced(records: Iterable[R], size: int = SLICE) -> Iterator[list[R]]:
    """The same records, so many at a time."""
    drawn = iter(records)
    while some := list(islice(drawn, size)):
        yield some
