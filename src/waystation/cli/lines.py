"""Lines of input as they come, without holding up the event loop.

A file is read in place.  Standard input may be a person or a slow pipe, so a thread waits for
it; the thread dies with the process, which is what Ctrl-C wants.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

__all__ = ["lines_of", "lines_of_stdin"]

_CHUNK_BYTES = 256 << 10
_CHUNKS_AHEAD = 8


async def lines_of(path: Path) -> AsyncIterator[list[bytes]]:
    """The lines of a file without their ends, some hundred KB of them at a time."""
    with path.open("rb") as file:
        left = b""
        while chunk := file.read(_CHUNK_BYTES):
            lines, left = _split(left + chunk)
            if lines:
                yield lines
    if left:
        yield [left]


async def lines_of_stdin() -> AsyncIterator[list[bytes]]:
    """The lines of standard input, as soon as they are there."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(_CHUNKS_AHEAD)

    def pump() -> None:
        descriptor = sys.stdin.fileno()
        chunk = b"-"
        while chunk:
            chunk = os.read(descriptor, _CHUNK_BYTES)
            try:
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            except (RuntimeError, asyncio.CancelledError):
                return  # the loop has ended, and with it whoever wanted lines

    threading.Thread(target=pump, name="stdin", daemon=True).start()
    left = b""
    while chunk := await chunks.get():
        lines, left = _split(left + chunk)
        if lines:
            yield lines
    if left:
        yield [left]


def _split(text: bytes) -> tuple[list[bytes], bytes]:
    """Whole lines, and what follows the last of them."""
    *lines, left = text.split(b"\n")
    return [line.removesuffix(b"\r") for line in lines], left
