"""How long the loop of a test is held by what runs in it."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def turns_watched() -> AsyncIterator[list[float]]:
    """Seconds that this thread worked in each turn of the loop: those of a busy machine count not.

    One turn has other things in it too, so that the longest of them says the most.
    """
    spent_s: list[float] = []

    async def watch() -> None:
        while True:
            began_s = time.thread_time()
            await asyncio.sleep(0)
            spent_s.append(time.thread_time() - began_s)

    watching = asyncio.ensure_future(watch())
    await asyncio.sleep(0)
    gc.disable()  # of all that a run of many tests has gathered nothing is said here
    try:
        yield spent_s
    finally:
        gc.enable()
        watching.cancel()
