"""Messages found by their keys, by our own client against a real broker."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from waystation import Admin, Producer
from waystation.client.find import Finder
from waystation.model.errors import InvalidRequestError, WaystationError
from waystation.testing.process import BrokerProcess

INDEXED = {"index.keys": "true", "segment.bytes": "4096"}


@pytest.fixture
async def admin(bootstrap: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap) as running:
        yield running


@pytest.fixture
async def producer(bootstrap: str) -> AsyncIterator[Producer]:
    async with Producer(bootstrap, linger_ms=0) as running:
        yield running


@pytest.fixture
async def finder(admin: Admin, topic: str) -> Finder:
    """Of a topic with three partitions and small segments."""
    await admin.create_topic(topic, 3, configs=INDEXED)
    return admin.finder(topic)


async def values(finder: Finder, key: str, **how: int) -> list[bytes | None]:
    return [message.value async for message in finder.find(key, **how)]


async def test_one_users_messages_are_found_among_all_others(
    finder: Finder, producer: Producer
) -> None:
    sent = {
        number: await producer.send(
            finder.topic, b"%d" % number, key=f"user-{number % 40}", headers={"n": str(number)}
        )
        for number in range(200)
    }

    found = [message async for message in finder.find("user-7")]

    assert [message.value for message in found] == [b"7", b"47", b"87", b"127", b"167"]
    assert [message.offset for message in found] == [
        sent[number].offset for number in range(7, 200, 40)
    ]
    assert {message.key for message in found} == {b"user-7"}
    assert found[0].headers == (("n", b"7"),)
    assert await values(finder, "user-7", offset=found[1].offset + 1, limit=2) == [b"87", b"127"]
    assert await values(finder, "nobody") == []
    page = await finder.page("user-7", limit=2)
    assert (len(page.messages), page.next_offset) == (2, found[1].offset + 1)


async def test_who_waits_is_given_a_message_of_the_key_and_no_other(
    finder: Finder, producer: Producer
) -> None:
    partition = await finder.partition_of("ann")
    waiting = asyncio.ensure_future(finder.page("ann", wait_ms=20_000))
    for number in range(20):
        await producer.send(finder.topic, b"%d" % number, key=b"bob", partition=partition)
    await asyncio.sleep(0)
    assert not waiting.done()
    await producer.send(finder.topic, b"hello", key=b"ann")

    page = await asyncio.wait_for(waiting, 10)

    assert [message.value for message in page.messages] == [b"hello"]
    late = await finder.page("ann", offset=page.next_offset, wait_ms=50)
    assert (late.messages, late.complete) == ([], True)


async def test_what_is_not_committed_is_not_found(
    bootstrap: str, finder: Finder, producer: Producer
) -> None:
    topic, partition = finder.topic, await finder.partition_of("ann")
    async with Producer(bootstrap, transactional_id=topic) as writer:
        async with writer.transaction():
            await writer.send(topic, b"first", key=b"ann", partition=partition)
            open_now = await values(finder, "ann")
            waiting = asyncio.ensure_future(finder.page("ann", wait_ms=20_000))
        assert [one.value for one in (await asyncio.wait_for(waiting, 10)).messages] == [b"first"]
        async with writer.transaction() as taken_back:
            await writer.send(topic, b"never", key=b"ann", partition=partition)
            await taken_back.abort()
    await producer.send(topic, b"last", key=b"ann")

    assert open_now == []
    assert await values(finder, "ann") == [b"first", b"last"]


async def test_who_waits_at_the_end_hears_of_a_commit_that_comes_late(
    bootstrap: str, finder: Finder, producer: Producer
) -> None:
    topic, partition = finder.topic, await finder.partition_of("ann")
    end = (await producer.send(topic, b"old", key=b"ann")).offset + 1
    waiting = asyncio.ensure_future(finder.page("ann", offset=end, wait_ms=20_000))
    async with Producer(bootstrap, transactional_id=topic) as writer:
        async with writer.transaction():
            await writer.send(topic, b"new", key=b"ann", partition=partition)
            # Indexed by now, and whoever waits was woken for nothing.
            assert await values(finder, "ann") == [b"old"]
            assert await values(finder, "ann", offset=end) == []

        page = await asyncio.wait_for(waiting, 10)

    assert [one.value for one in page.messages] == [b"new"]


async def test_a_topic_gets_an_index_and_loses_it(
    admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    for number in range(30):
        await producer.send(topic, b"%d" % number, key=f"k{number % 3}")
    finder = admin.finder(topic)
    with pytest.raises(InvalidRequestError, match=r"index\.keys=true"):
        await values(finder, "k1")
    await admin.alter_configs(topic, set={"index.keys": "true"})

    assert await values(finder, "k1") == [b"%d" % number for number in range(1, 30, 3)]

    await admin.delete_records({(topic, 0): 10})
    assert await values(finder, "k1") == [b"%d" % number for number in range(10, 30, 3)]
    await admin.alter_configs(topic, set={"index.keys": "false"})
    with pytest.raises(InvalidRequestError):
        await values(finder, "k1")


@pytest.mark.parametrize(
    ("how", "said"),
    [({"limit": 0}, "limit"), ({"offset": 99}, "99"), ({"partition": 77}, "77")],
)
async def test_nonsense_is_refused(finder: Finder, how: dict[str, int], said: str) -> None:
    with pytest.raises(WaystationError, match=said):
        await finder.page("ann", **how)


async def test_an_index_that_is_damaged_under_a_running_broker_is_made_anew(
    finder: Finder, producer: Producer, broker: BrokerProcess
) -> None:
    keys = [f"user-{number}" for number in range(100)]
    for key in keys:
        await producer.send(finder.topic, key.encode() * 10, key=key, partition=0)
    for key in keys:
        assert len(await values(finder, key, partition=0)) == 1
    files = list((broker.data_dir / f"{finder.topic}-0").glob("*.keyindex"))
    assert files
    for path in files:
        with path.open("r+b") as file:  # of the last entry where its batch lies
            file.seek(-8, os.SEEK_END)
            file.write(b"\x01")

    for key in keys:
        assert await values(finder, key, partition=0) == [key.encode() * 10]
