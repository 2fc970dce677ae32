"""How old the first message at an offset is: read from the log, for nothing else knows."""

import asyncio
from collections.abc import Callable, Mapping

from waystation.client.fetcher import Fetcher
from waystation.client.router import Router
from waystation.client.settings import ConsumerSettings
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.runtime.clock import Clock

__all__ = ["timestamps_at"]

# Enough for the usual batch of many partitions at once; a larger one comes when it is its turn.
_SETTINGS = ConsumerSettings(fetch_partition_bytes=32 << 10, fetch_max_wait_ms=50)


async def timestamps_at(
    router: Router,
    offsets: Mapping[TopicPartition, Offset],
    ends: Mapping[TopicPartition, Offset],
    clock: Clock,
    within_ms: int,
    found_more: Callable[[int], None] = lambda _: None,
) -> dict[TopicPartition, Millis]:
    """The timestamp of the first message at or after each offset and before ``ends``.

    Partitions that show none are left out: what lies there is for the broker only, such as the
    markers of transactions, or was deleted meanwhile, or did not come in time.
    """
    found: dict[TopicPartition, Millis] = {}
    if not offsets:
        return found
    fetcher = Fetcher(router, _SETTINGS, clock)
    try:
        for topic in dict.fromkeys(where.topic for where in offsets):
            await router.topic(topic)
        for where, offset in offsets.items():
            fetcher.add(where).seek(offset)
        fetcher.wake()
        async with asyncio.timeout(within_ms / 1_000):
            while fetcher.feeds:
                await fetcher.arrived.wait()
                fetcher.arrived.clear()
                before = len(fetcher.feeds)
                _collect(fetcher, ends, found)
                found_more(before - len(fetcher.feeds))
    except TimeoutError:
        return found
    finally:
        await fetcher.close()
    return found


def _collect(
    fetcher: Fetcher, ends: Mapping[TopicPartition, Offset], found: dict[TopicPartition, Millis]
) -> None:
    """Take one message of each feed that has one, and read no more of it, nor past its end."""
    for feed in list(fetcher.troubled):
        fetcher.remove(feed.partition)
    while fetcher.turns:
        feed = fetcher.turns.popleft()
        if feed.partition not in fetcher.feeds:
            continue
        try:
            taken = feed.take(1)
        except WaystationError:
            fetcher.remove(feed.partition)
            continue
        if taken:
            found[feed.partition] = taken[0].timestamp
        if taken or feed.position >= ends[feed.partition]:
            fetcher.remove(feed.partition)
    fetcher.drained()
