"""Large JSON bodies of many messages, decoded slice by slice, so that the loop turns in between.

The decoder holds the interpreter while it works, in a thread too: 16 MiB of small messages take
0.3 s, in which nothing else would happen.  So a body that begins with ``{"messages": [`` is cut
behind an element, about every 64 KiB, and each slice is decoded as a body of its own.

Where an element ends is not guessed: what has been decoded as a whole list from its beginning on
ends where an element ends.  A cut that was none makes JSON that is not whole; the next ``},`` is
tried then, and a longer slice after some of those.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

__all__ = ["SLICE_BYTES", "sliced"]

SLICE_BYTES: Final = 64 << 10
_BEGIN: Final = re.compile(rb'\s*\{\s*"messages"\s*:\s*\[')
_BETWEEN: Final = re.compile(rb"\}\s*,")
_IN_MESSAGE: Final = re.compile(r"\$\.messages\[(\d+)\]")
_AT_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_HEAD, _TAIL = b'{"messages":[', b"]}"
_TRIES: Final = 4


async def sliced(body: bytes, decode: Callable[[bytes], Any]) -> Any:
    """What ``decode`` makes of the whole ``body``; raises as it does."""
    begin = _BEGIN.match(body)
    if begin is None:
        return decode(body)
    at: int = begin.end()
    found: list[Any] = []
    try:
        while (cut := _cut(body, at, decode)) is not None:
            messages, at = cut
            found += messages
            await asyncio.sleep(0)
        last = decode(_HEAD + body[at:])
    except msgspec.ValidationError as error:
        told = _IN_MESSAGE.sub(lambda one: f"$.messages[{int(one[1]) + len(found)}]", str(error))
        raise msgspec.ValidationError(told) from None
    except msgspec.DecodeError as error:
        shift = at - len(_HEAD)
        told = _AT_BYTE.sub(lambda one: f"(byte {int(one[1]) + shift})", str(error))
        raise msgspec.DecodeError(told) from None
    return msgspec.structs.replace(last, messages=found + last.messages)


def _cut(body: bytes, at: int, decode: Callable[[bytes], Any]) -> tuple[list[Any], int] | None:
    """The messages of the next slice and where it ends; ``None`` if the rest is short."""
    size = SLICE_BYTES
    while at + size < len(body):
        end = at + size
        for _ in range(_TRIES):
            between = _BETWEEN.search(body, end)
            if between is None:
                return None
            end = between.end()
            try:
                return decode(_HEAD + body[at : between.start() + 1] + _TAIL).messages, end
            except msgspec.ValidationError:
                raise
            except msgspec.DecodeError:
                continue
        size *= 2
    return None
