"""Queues over real WebSockets: what is pushed, settled, given back and counted."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.support.push_client import PushSocket, socket

from waystation.client.admin import Admin
from waystation.client.queue import Queue, QueueMessage
from waystation.client.transport import connect_tcp
from waystation.gateway.app import App, Reach, serve_http
from waystation.gateway.bodies import Limits
from waystation.testing.process import BrokerProcess

SOCKETS = 12


@pytest.fixture
def http(broker: BrokerProcess) -> str:
    return broker.http


@pytest.fixture
async def queue(bootstrap: str, topic: str) -> AsyncIterator[Queue]:
    async with Admin(bootstrap) as admin:
        await admin.create_queue(topic)
    async with Queue(topic, bootstrap) as one:
        yield one


async def send(queue: Queue, count: int) -> None:
    await asyncio.gather(*[queue.send(str(number)) for number in range(count)])


async def test_messages_are_pushed_as_credit_allows_and_settled_once(
    http: str, queue: Queue, topic: str
) -> None:
    await send(queue, 6)
    async with socket(http, f"queues/{topic}", credit=2) as talk:
        found = await talk.frames("message", 2)
        assert [one["deliveries"] for one in found] == [1, 1]
        assert found[0]["lease_ms"] > 1_000
        await talk.say(type="ack", ids=[one["id"] for one in found], ref=1)
        assert await talk.hear() == {"type": "settled", "settled": 2, "ref": 1}

        await talk.say(type="credit", messages=100)
        found += await talk.frames("message", 4)
        await talk.say(type="ack", ids=[one["id"] for one in found], ref=2)
        (told,) = await talk.frames("settled")

    assert told["settled"] == 4
    assert {one["id"] for one in told["refused"]} == {one["id"] for one in found[:2]}
    assert sorted(one["value"] for one in found) == [str(number) for number in range(6)]
    assert await queue.receive(10, 300) == []


async def test_who_goes_between_receiving_and_settling_gives_back_at_once(
    http: str, queue: Queue, topic: str
) -> None:
    await send(queue, 5)
    async with socket(http, f"queues/{topic}", credit=100) as talk:
        found = await talk.frames("message", 5)
        await talk.say(type="ack", ids=[found[0]["id"]], ref=0)
        await talk.frames("settled")

        talk.connection.transport.abort()

    again = list[str]()
    async with asyncio.timeout(5):
        while len(again) < 4:
            for one in await queue.receive(10, 5_000):
                assert one.deliveries == 2
                again.append(one.id)
                await queue.ack(one)
    assert sorted(again) == sorted(one["id"] for one in found[1:])


async def test_who_falls_silent_gives_back_too(bootstrap: str, queue: Queue, topic: str) -> None:
    """A gateway with little patience, and a peer that answers no ping."""
    await send(queue, 3)
    app = App([], Reach(bootstrap, connect_tcp), Limits(ping_s=0.2))
    server = await serve_http(app, "127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(
            f"GET /v1/queues/{topic}/socket?credit=3 HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
            "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        async with asyncio.timeout(30):
            await reader.readuntil(b'"value":"2"')  # all three are held, and nothing is said

            found = list[QueueMessage]()
            while len(found) < 3:
                found += await queue.receive(10, 5_000)
        writer.close()
    finally:
        await server.aclose()
        await app.aclose()
    assert [one.deliveries for one in found] == [2, 2, 2]


async def test_given_back_comes_again_and_given_up_does_not(
    http: str, queue: Queue, topic: str
) -> None:
    await send(queue, 1)
    async with socket(http, f"queues/{topic}", credit=10) as talk:
        (one,) = await talk.frames("message")
        await talk.say(type="nack", ids=[one["id"]])
        (one,) = await talk.frames("message")
        assert one["deliveries"] == 2

        loop = asyncio.get_running_loop()
        began = loop.time()
        await talk.say(type="nack", ids=[one["id"]], delay="400ms", ref="later")
        await talk.frames("settled")
        (one,) = await talk.frames("message")
        assert (one["deliveries"], loop.time() - began > 0.4) == (3, True)

        await talk.say(type="extend", ids=[one["id"], "0-99"], ref="more")
        (told,) = await talk.frames("settled")
        assert (told["settled"], told["refused"][0]["id"]) == (1, "0-99")

        await talk.say(type="nack", ids=[one["id"]], requeue=False, ref="never")
        await talk.frames("settled")
    assert await queue.receive(10, 300) == []


async def test_two_sockets_share_a_queue(http: str, queue: Queue, topic: str) -> None:
    async def take(talk: PushSocket, count: int) -> list[str]:
        found = await talk.frames("message", count)
        await talk.say(type="ack", ids=[one["id"] for one in found], ref=0)
        await talk.frames("settled")
        return [one["value"] for one in found]

    async with (
        socket(http, f"queues/{topic}", credit=10) as first,
        socket(http, f"queues/{topic}", credit=10) as second,
    ):
        await first.frames("ready")
        await second.frames("ready")
        await send(queue, 20)
        found = await asyncio.gather(take(first, 10), take(second, 10))

    assert sorted(found[0] + found[1], key=int) == [str(number) for number in range(20)]


async def test_what_is_not_for_queues_is_refused(http: str, queue: Queue, topic: str) -> None:
    async with socket(http, f"queues/{topic}", credit=1) as talk:
        await talk.frames("ready")
        for said in (
            {"type": "commit", "positions": [{"partition": 0, "offset": 1}]},
            {"type": "ack", "ids": []},
            {"type": "ack", "ids": ["x"], "delay": 3},
            {"type": "nack", "ids": ["x"], "delay": "tomorrow", "ref": 7},
        ):
            await talk.say(**said)
            told = await talk.hear()
            assert told["type"] == "error" or told["refused"], told
        await talk.say(type="send", message={"value": "works"})
        (one,) = await talk.frames("message")
        assert one["value"] == "works"


# --- many sockets of one node -------------------------------------------------------------------


async def test_the_sockets_of_a_node_are_one_consumer_and_each_settles_its_own(
    http: str, bootstrap: str, queue: Queue, topic: str
) -> None:
    async with contextlib.AsyncExitStack() as opened:
        talks = [
            await opened.enter_async_context(socket(http, f"queues/{topic}", credit=1))
            for _ in range(SOCKETS)
        ]
        await send(queue, SOCKETS)
        found = [(await talk.frames("message", 1))[0] for talk in talks]
        assert sorted(int(one["value"]) for one in found) == list(range(SOCKETS))
        async with Admin(bootstrap) as admin:
            assert (await admin.describe_queue(topic)).members == 1

        await talks[0].say(type="ack", ids=[found[1]["id"]], ref=0)
        (told,) = await talks[0].frames("settled")
        assert [one["id"] for one in told["refused"]] == [found[1]["id"]], "another socket's"
        for talk, one in zip(talks, found, strict=True):
            await talk.say(type="ack", ids=[one["id"]], ref=1)
        for talk in talks:
            assert (await talk.frames("settled"))[0]["settled"] == 1

    assert await queue.receive(10, 300) == []


async def test_what_one_socket_held_goes_to_another_and_those_who_stay_keep_theirs(
    http: str, queue: Queue, topic: str
) -> None:
    async with (
        socket(http, f"queues/{topic}", credit=2) as stays,
        socket(http, f"queues/{topic}", credit=3) as goes,
    ):
        await send(queue, 5)
        kept = await stays.frames("message", 2)
        lost = await goes.frames("message", 3)
        assert {one["deliveries"] for one in [*kept, *lost]} == {1}

        goes.connection.transport.abort()
        await stays.say(type="credit", messages=10)
        again = await stays.frames("message", 3)

        assert {one["id"] for one in again} == {one["id"] for one in lost}
        assert {one["deliveries"] for one in again} == {2}
        await stays.say(type="ack", ids=[one["id"] for one in [*kept, *again]], ref=1)
        assert (await stays.frames("settled"))[0]["settled"] == 5


async def test_who_takes_nothing_keeps_no_partition_from_a_socket(
    http: str, bootstrap: str, topic: str
) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_queue(topic, 2)
    async with Queue(topic, bootstrap) as idle, socket(http, f"queues/{topic}", credit=10) as talk:
        await idle.join()
        async with Admin(bootstrap) as admin, asyncio.timeout(5):
            while (await admin.describe_queue(topic)).members < 2:
                await asyncio.sleep(0.02)
        await asyncio.gather(*[idle.send(str(number), key=str(number)) for number in range(10)])

        found = await talk.frames("message", 10)

    assert {one["partition"] for one in found} == {0, 1}
