"""Many subscribers of one topic, and slow ones among them."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.support.http_client import HttpClient
from tests.support.push_client import EventStream, PushSocket, events, socket
from tests.support.soak import count

from waystation.client.admin import Admin
from waystation.client.producer import Producer
from waystation.testing.process import BrokerProcess

SUBSCRIBERS = count(200, 500)
MESSAGES = count(50, 400)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir: Path = tmp_path_factory.mktemp("push") / "data"
    with BrokerProcess(data_dir, http="127.0.0.1:0").start() as one:
        yield one


@pytest.fixture
async def producer(own: BrokerProcess) -> AsyncIterator[Producer]:
    async with Producer(own.bootstrap, linger_ms=0) as one:
        yield one


def metric(own: BrokerProcess, name: str) -> float:
    with HttpClient(own.http) as client:
        told = client.get("/metrics").body.decode()
    samples = re.finditer(rf"^{name}(?:{{[^}}]*}})? (\S+)$", told, re.MULTILINE)
    return sum(float(found[1]) for found in samples)


def resident_bytes(own: BrokerProcess) -> int:
    status = Path(f"/proc/{own.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1_024


async def until(wanted: float, own: BrokerProcess, name: str) -> None:
    async with asyncio.timeout(30):
        while await asyncio.to_thread(metric, own, name) != wanted:
            await asyncio.sleep(0.05)


async def test_many_subscribers_get_everything_in_order(
    own: BrokerProcess, producer: Producer
) -> None:
    """Events and sockets, with a filter and without, all from one reader."""
    async with Admin(own.bootstrap) as admin:
        await admin.create_topic("many", 2)

    async def numbers(one: EventStream | PushSocket, wanted: int) -> list[int]:
        if isinstance(one, EventStream):
            return [int(event.data["value"]) for event in await one.events(wanted)]
        return [int(told["value"]) for told in await one.frames("message", wanted)]

    before = await asyncio.to_thread(metric, own, "waystation_push_messages_total")
    async with AsyncExitStack() as stack:
        streams: list[tuple[EventStream | PushSocket, bool]] = []
        for number in range(SUBSCRIBERS):
            where = {"where": "partition = 0"} if number % 5 == 0 else {}
            opened = (
                events(own.http, "many", **where)
                if number % 2
                else socket(own.http, "topics/many", credit=10**6, **where)
            )
            streams.append((await stack.enter_async_context(opened), bool(where)))
        await until(SUBSCRIBERS, own, "waystation_push_subscribers")
        await until(0, own, "waystation_push_lagging")
        reading = [
            asyncio.ensure_future(numbers(one, MESSAGES // 2 if half else MESSAGES))
            for one, half in streams
        ]
        for number in range(MESSAGES):
            await producer.send("many", str(number), partition=number % 2)
        found = await asyncio.gather(*reading)

    for got, (_, half) in zip(found, streams, strict=True):
        evens = [one for one in got if one % 2 == 0]
        assert evens == list(range(0, MESSAGES, 2))
        assert [one for one in got if one % 2] == ([] if half else list(range(1, MESSAGES, 2)))
    await until(0, own, "waystation_push_subscribers")
    pushed = await asyncio.to_thread(metric, own, "waystation_push_messages_total")
    assert pushed - before == sum(map(len, found))


async def test_who_does_not_read_costs_no_memory_and_holds_up_nobody(
    own: BrokerProcess, producer: Producer
) -> None:
    """Slow ones and quick ones follow one topic; in the end all have had all of it, once."""
    async with Admin(own.bootstrap) as admin:
        await admin.create_topic("slow", 1)
    size, total = 50_000, count(800, 4_000)
    async with AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(events(own.http, "slow")) for _ in range(10)]
        credited = await stack.enter_async_context(socket(own.http, "topics/slow", credit=5))
        quick = await stack.enter_async_context(events(own.http, "slow"))
        for one in slow:
            one.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await producer.send("slow", "x" * size)
        await quick.events(1)
        before = resident_bytes(own)
        reading = asyncio.ensure_future(quick.events(total))
        for begin in range(0, total, 20):
            await asyncio.gather(
                *[producer.send("slow", f"{begin + n}:" + "x" * size) for n in range(20)]
            )
        assert [one.data["offset"] for one in await reading] == list(range(1, total + 1))
        grown = resident_bytes(own) - before
        assert grown < 30 << 20, f"{grown >> 20} MiB for {total * size >> 20} MiB that wait"
        assert await asyncio.to_thread(metric, own, "waystation_push_lagging") == 11

        assert [one["offset"] for one in await credited.frames("message", 5)] == list(range(5))
        for one in slow[:2]:
            one.writer.transport.resume_reading()  # type: ignore[attr-defined]
            found = [event.data["offset"] for event in await one.events(total + 1)]
            assert found == list(range(total + 1))
