"""Consumers that closed are gone at once: nothing waits for the collector, which may never come."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator

import pytest

from waystation.client.admin import Admin
from waystation.client.consumer import Consumer
from waystation.client.producer import Producer


@pytest.fixture
def garbage() -> Iterator[Callable[[], list[str]]]:
    """Tells which objects of the client nobody needs, though they are there."""

    def found() -> list[str]:
        gc.garbage.clear()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        names = [f"{type(one).__module__}.{type(one).__name__}" for one in gc.garbage]
        return [name for name in names if name.startswith("waystation.client")]

    gc.collect()
    gc.disable()
    yield found
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


async def reads_in_a_group(bootstrap: str, topic: str) -> None:
    async with Consumer(f"{topic}-group", [topic], bootstrap=bootstrap, start="earliest") as one:
        assert await one.poll(10_000)


async def reads(bootstrap: str, topic: str) -> None:
    async with Consumer(None, [topic], bootstrap=bootstrap, start="earliest") as one:
        assert await one.poll(10_000)


@pytest.mark.parametrize(
    "use",
    [reads_in_a_group, reads],
    ids=lambda one: one.__name__,
)
async def test_nothing_is_left_of_who_has_closed(
    bootstrap: str,
    topic: str,
    garbage: Callable[[], list[str]],
    use: Callable[[str, str], Awaitable[None]],
) -> None:
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topic(topic, 2)
        await producer.send(topic, "a")
    gc.collect()

    await use(bootstrap, topic)
    await asyncio.sleep(0)

    assert garbage() == []
