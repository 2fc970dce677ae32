"""Fetches of views in a running broker: what they held is let go of when they end."""

import gc
from pathlib import Path

from tests.broker.dying import address, running
from waystation import Admin, Consumer, Producer
from waystation.broker.view_reading import Reading


async def test_what_a_fetch_of_a_view_held_does_not_wait_for_the_collector(tmp_path: Path) -> None:
    """Each may hold megabytes, and collections are rare."""
    async with running(tmp_path) as node:
        at = address(node)
        async with Admin(at) as admin, Producer(at, linger_ms=0) as producer:
            await admin.create_topic("orders", 1)
            await admin.create_view("some", "orders", "key = 'k'")
            async with Consumer(bootstrap=at, start="earliest") as consumer:
                await consumer.assign(await consumer.partitions_of("some"))
                gc.collect()
                gc.disable()
                try:
                    for number in range(10):
                        await producer.send("orders", str(number), key="k")
                        while not await consumer.poll(10, 1_000):
                            pass
                    left = [one for one in gc.get_objects() if isinstance(one, Reading)]
                finally:
                    gc.enable()

    assert len(left) <= 2
