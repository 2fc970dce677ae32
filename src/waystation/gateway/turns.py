"""Work on many things at once, in turns of the loop that stay short for everybody else."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

__all__ = ["in_turns"]

T = TypeVar("T")
R = TypeVar("R")

_TURN: Final = 100


async def in_turns(make: Callable[[Sequence[T]], list[R]], things: Sequence[T]) -> list[R]:
    """What ``make`` makes of all ``things``; it is given a hundred of them at a time."""
    made = make(things[:_TURN])
    for begin in range(_TURN, len(things), _TURN):
        await asyncio.sleep(0)
        made += make(things[begin : begin + _TURN])
    return made
