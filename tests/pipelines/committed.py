"""What readers of committed records are shown of a topic."""

import asyncio
import time

from waystation import Consumer, Message


def committed(bootstrap: str, topic: str, within_s: float = 30.0) -> list[Message]:
    """All of it, each partition in order; behind an open transaction it waits for so long."""
    return asyncio.run(_read(bootstrap, topic, within_s))


async def _read(bootstrap: str, topic: str, within_s: float) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + within_s
    # The end of the log, not that of what is committed: nothing may be passed over silently.
    async with Consumer(topics=topic, bootstrap=bootstrap) as consumer:
        ends = await consumer.end_offsets()
    async with Consumer(
        topics=topic, bootstrap=bootstrap, isolation="read_committed", start="earliest"
    ) as consumer:
        while any(consumer.position(one) < end for one, end in ends.items()):
            assert time.monotonic() < deadline, f"a transaction in {topic} stays open"
            found += await consumer.poll(timeout_ms=200, max_messages=10_000)
    return found
