"""How long an administrator's wish may take before its answer says that nobody knows.

Written it may be all the same: whoever is told so looks before asking again.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from waystation.model.errors import RequestTimedOutError

T = TypeVar("T")

_USUAL_MS = 60_000


async def within(timeout_ms: int, work: Awaitable[T]) -> T:
    """What ``work`` gives, or ``RequestTimedOutError``; a client without patience gets a minute.

    Kafka's own clients send a time of their own; 0 is what those send that do not care.
    """
    allowed_ms = timeout_ms if timeout_ms > 0 else _USUAL_MS
    try:
        async with asyncio.timeout(allowed_ms / 1_000):
            return await work
    except TimeoutError:
        raise RequestTimedOutError(
            f"not done within {allowed_ms} ms; it may be done later all the same"
        ) from None
