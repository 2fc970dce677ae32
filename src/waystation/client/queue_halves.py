"""Which of several messages cannot be settled, when a leader refuses them together.

A leader follows what is said about a partition as a whole or not at all.  So it is said again in
halves, until those that are at fault stand alone; the others are settled on the way.
"""

from collections.abc import Awaitable, Callable

from waystation.client.queue_settling import Kinds

__all__ = ["culprits"]

_ASKED_MAX = 200
"""Beyond it the rest counts as refused: it is delivered again, which is no loss."""


async def culprits(
    kinds: Kinds,
    why: str,
    tell: Callable[[Kinds], Awaitable[str | None]],
    is_over: Callable[[], bool],
) -> dict[int, str]:
    """The offsets at fault, each with the last reason given; ``kinds`` was refused as a whole.

    ``tell`` says why a part was refused, if it was; ``is_over`` whether it is of no use to go on.
    """
    found: dict[int, str] = {}
    refused, asked = [(kinds, why)], 0
    while refused:
        part, why = refused.pop()
        if len(part) == 1 or asked >= _ASKED_MAX or is_over():
            found |= dict.fromkeys(part, why)
            continue
        offsets = sorted(part)
        middle = len(offsets) // 2
        for half in (offsets[:middle], offsets[middle:]):
            asked += 1
            again = {offset: part[offset] for offset in half}
            if (said := await tell(again)) is not None:
                refused.append((again, said))
    return found
