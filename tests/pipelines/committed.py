"""What a topic holds, and what readers of committed records are shown of it."""

import asyncio
import time

from waystation import Consumer, Message
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset


def committed(bootstrap: str, topic: str, within_s: float = 30.0) -> list[Message]:
    """All of it, each partition in order; behind an open transaction it waits for so long."""
    return asyncio.run(_read(bootstrap, topic, "read_committed", within_s))


def in_the_log(bootstrap: str, topic: str) -> list[Message]:
    """Also what no reader of committed records is shown."""
    return asyncio.run(_read(bootstrap, topic, "read_uncommitted", 30.0))


def ends(bootstrap: str, topic: str) -> dict[TopicPartition, Offset]:
    """Where each partition's log ends."""
    return asyncio.run(_ends(bootstrap, topic))


async def _ends(bootstrap: str, topic: str) -> dict[TopicPartition, Offset]:
    async with Consumer(topics=topic, bootstrap=bootstrap) as consumer:
        return await consumer.end_offsets()


async def _read(bootstrap: str, topic: str, isolation: str, within_s: float) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + within_s
    # The end of the log, not that of what is committed: nothing may be passed over silently.
    log_ends = await _ends(bootstrap, topic)
    async with Consumer(
        topics=topic, bootstrap=bootstrap, isolation=isolation, start="earliest"
    ) as consumer:
        while any(consumer.position(one) < end for one, end in log_ends.items()):
            assert time.monotonic() < deadline, f"a transaction in {topic} stays open"
            found += await consumer.poll(timeout_ms=200, max_messages=10_000)
    return found
