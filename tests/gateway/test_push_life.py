"""Push outlives nodes, and ends in order with them."""

import asyncio
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster import ProcessCluster
from tests.support.push_client import events, socket
from tests.support.soak import count

from waystation.client.admin import Admin
from waystation.client.producer import Producer
from waystation.client.queue import Queue
from waystation.testing.process import BrokerProcess


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", http="127.0.0.1:0").start() as one:
        yield one


async def test_a_node_that_stops_ends_streams_and_gives_back_what_sockets_held(
    mortal: BrokerProcess,
) -> None:
    async with Admin(mortal.bootstrap) as admin:
        await admin.create_topic("topic", 2)
        await admin.create_queue("queue")
    async with Producer(mortal.bootstrap) as producer:
        await producer.send("queue", "work")
    async with events(mortal.http, "topic", group="h", heartbeat_ms=100) as gone:
        await gone.beat()
    async with (
        events(mortal.http, "topic") as stream,
        socket(mortal.http, "topics/topic", credit=1) as talk,
        socket(mortal.http, "topics/topic", group="g", credit=1) as member,
        socket(mortal.http, "queues/queue", credit=5) as consumer,
    ):
        await consumer.frames("message")
        await talk.frames("ready")
        await member.frames("partitions")

        await asyncio.to_thread(mortal.stop)

        assert await stream.end() == []
        for one in (talk, member, consumer):
            await asyncio.wait_for(one.connection.wait_closed(), 10)
            assert one.connection.close_code == 1001
    assert '"level": "error"' not in mortal.log_path.read_text()
    await asyncio.to_thread(mortal.start)
    async with Queue("queue", mortal.bootstrap) as queue:
        (message,) = await queue.receive(10, 10_000)
        assert message.deliveries == 2


async def test_kill_minus_nine_and_the_same_node_goes_on_behind_the_last_id(
    mortal: BrokerProcess,
) -> None:
    async with Admin(mortal.bootstrap) as admin:
        await admin.create_topic("topic", 2)
    found = list[str]()
    async with Producer(mortal.bootstrap, linger_ms=0) as producer:
        async with events(mortal.http, "topic") as stream:
            for number in range(40):
                await producer.send("topic", str(number))
            found += [one.data["value"] for one in await stream.events(25)]
            last = stream.last_id
            await asyncio.to_thread(mortal.kill)
        await asyncio.to_thread(mortal.start)
        for number in range(40, 60):
            await producer.send("topic", str(number))
        async with events(mortal.http, "topic", header=last) as stream:
            found += [one.data["value"] for one in await stream.events(35)]

    assert sorted(found, key=int) == [str(number) for number in range(60)]


async def test_what_a_member_was_sent_and_never_got_is_somebody_elses(
    mortal: BrokerProcess,
) -> None:
    """It stops reading, and the node dies with what it holds for it."""
    total = 2_500
    async with Admin(mortal.bootstrap) as admin:
        await admin.create_topic("topic", 1)
    async with events(mortal.http, "topic", group="g", from_="earliest") as member:
        member.writer.transport.pause_reading()
        async with Producer(mortal.bootstrap) as producer:
            values = [f"{number:09}".ljust(3_000) for number in range(total)]
            await asyncio.gather(*[producer.send("topic", one) for one in values])
        before = -1.0
        while (now := await asyncio.to_thread(_pushed, mortal)) != before or not now:
            before = now
            await asyncio.sleep(0.3)
        await asyncio.to_thread(mortal.kill)
        member.writer.transport.resume_reading()
        found = {int(one.data["value"]) for one in await member.end()}
    assert len(found) < total, "it took what it could"
    await asyncio.to_thread(mortal.start)

    async with Admin(mortal.bootstrap) as admin:
        (kept,) = (await admin.group_offsets("g")).values()
    assert 0 < kept.offset <= len(found), "the rest comes again"


def _pushed(broker: BrokerProcess) -> float:
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    (line,) = [one for one in lines if one.startswith("waystation_push_messages_total")]
    return float(line.split()[-1])


@pytest.mark.timeout(180)
def test_who_loses_its_node_goes_on_at_another_and_misses_nothing(tmp_path: Path) -> None:
    """A node is killed with -9 while messages are sent; it may lead some of the partitions."""
    total = count(300, 20_000)

    async def produce(bootstrap: str) -> None:
        async with Producer(bootstrap, linger_ms=0, delivery_timeout_ms=60_000) as producer:
            for number in range(total):
                await producer.send("topic", str(number), partition=number % 4)

    async def follow(cluster: ProcessCluster) -> list[str]:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic("topic", 4, replication_factor=3)
        producing = asyncio.ensure_future(produce(cluster.bootstrap))
        found, last = list[str](), ""
        async with events(cluster.brokers[1].http, "topic", from_="earliest") as stream:
            found += [one.data["value"] for one in await stream.events(total // 3)]
            last = stream.last_id
            cluster.kill(1)
            rest = await stream.end()
            found += [one.data["value"] for one in rest]
            last = stream.last_id
        async with events(cluster.brokers[2].http, "topic", header=last) as stream:
            while len(found) < total:
                found += [one.data["value"] for one in await stream.events(1)]
        await producing
        return found

    with ProcessCluster(tmp_path, 3, http="127.0.0.1:0") as cluster:
        found = asyncio.run(follow(cluster))

    assert sorted(found, key=int) == [str(number) for number in range(total)]
    for partition in range(4):
        mine = [int(one) for one in found if int(one) % 4 == partition]
        assert mine == sorted(mine)
