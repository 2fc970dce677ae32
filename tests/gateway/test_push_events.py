"""Server-sent events of real topics: what comes, in which order, and how it goes on."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from tests.support.push_client import EventStream, events

from waystation.client.admin import Admin
from waystation.client.producer import Producer
from waystation.testing.process import BrokerProcess

pytestmark = pytest.mark.asyncio(loop_scope="function")


@pytest.fixture
def http(broker: BrokerProcess) -> str:
    return broker.http


@pytest.fixture
async def admin(bootstrap: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap) as one:
        yield one


@pytest.fixture
async def producer(bootstrap: str) -> AsyncIterator[Producer]:
    async with Producer(bootstrap, linger_ms=0) as one:
        yield one


async def send(producer: Producer, topic: str, values: Any, partition: int | None = 0) -> None:
    await asyncio.gather(*[producer.send(topic, str(one), partition=partition) for one in values])


async def values(stream: EventStream, count: int) -> list[str]:
    return [one.data["value"] for one in await stream.events(count)]


def texts(numbers: Any) -> list[str]:
    return [str(one) for one in numbers]


async def test_events_come_as_messages_do(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    await send(producer, topic, ["before"])
    async with events(http, topic) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream"

        await producer.send(topic, "hello", key="k", headers=[("kind", b"x")], timestamp=5)

        (event,) = await stream.events(1)
        assert (event.kind, stream.retry_ms) == ("message", 1_000)
        assert event.data == {
            "partition": 0,
            "offset": 1,
            "timestamp_ms": 5,
            "key": "k",
            "value": "hello",
            "headers": [{"name": "kind", "value": "x"}],
        }


async def test_a_subscriber_begins_where_it_is_told(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    for moment in range(5):
        await producer.send(topic, str(moment), timestamp=1_000 * moment)

    for query, first in (
        ({"from_": "earliest"}, 0),
        ({"offset": 3}, 3),
        ({"since": 2_000}, 2),
        ({"since": "1970-01-01T00:00:01Z"}, 1),
    ):
        async with events(http, topic, **query) as stream:
            assert await values(stream, 5 - first) == texts(range(first, 5)), query


async def test_ids_go_on_exactly_behind_their_message(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 3)
    for partition in range(3):
        await send(producer, topic, [f"{partition}:{n}" for n in range(40)], partition)
    async with events(http, topic, from_="earliest") as stream:
        found = await stream.events(120)

    for at in (0, 1, 39, 40, 63, 118):
        seen = {one.data["value"] for one in found[: at + 1]}
        async with events(http, topic, header=found[at].id) as stream:
            rest = await values(stream, 119 - at)
        assert len(rest) == len(set(rest))
        assert seen.isdisjoint(rest)
        for partition in range(3):
            mine = [one for one in rest if one.startswith(f"{partition}:")]
            assert mine == [f"{partition}:{n}" for n in range(40 - len(mine), 40)]


async def test_who_breaks_off_again_and_again_misses_nothing_and_sees_nothing_twice(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    """At the end of the topic and behind it, by header and by parameter, while it grows."""
    await admin.create_topic(topic, 2)

    async def produce() -> None:
        for number in range(300):
            await producer.send(topic, str(number), partition=number % 2)

    last, found = "", list[str]()
    async with events(http, topic) as stream:
        producing = asyncio.ensure_future(produce())
        found += await values(stream, 7)
        last = stream.last_id
    for turn in range(40):
        how = {"last_event_id": last} if turn % 2 else {"header": last}
        async with events(http, topic, **how) as stream:
            found += await values(stream, 7)
            last = stream.last_id
    await producing
    async with events(http, topic, last_event_id=last) as stream:
        found += await values(stream, 300 - len(found))

    assert sorted(found, key=int) == texts(range(300))
    for parity in (0, 1):
        mine = [int(one) for one in found if int(one) % 2 == parity]
        assert mine == sorted(mine)


async def test_before_the_first_message_there_is_an_id_already(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    async with events(http, topic, heartbeat_ms=100) as stream:
        await stream.beat()
        last = stream.last_id
    await send(producer, topic, ["meanwhile"])

    async with events(http, topic, last_event_id=last) as stream:
        assert await values(stream, 1) == ["meanwhile"]


async def test_filters_choose_and_heartbeats_tell_how_far_it_got(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    async with events(
        http, topic, where="value.n >= 2 AND value.n < 4", values="json", heartbeat_ms=200
    ) as stream:
        for number in range(6):
            await producer.send(topic, f'{{"n": {number}}}')

        found = await stream.events(2)
        assert [one.data["value"] for one in found] == [{"n": 2}, {"n": 3}]
        await stream.beat()
        assert stream.last_id.endswith(".0-6"), "the filtered ones count as read"
    async with events(http, topic, where="value.n >= 2", from_="earliest", values="json") as stream:
        assert [one.data["value"]["n"] for one in await stream.events(4)] == [2, 3, 4, 5]


async def test_a_heartbeat_comes_in_time_behind_a_message(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    """Right behind a heartbeat there is a message; the next one is not put off twice as long."""
    await admin.create_topic(topic, 1)
    silences = []
    async with events(http, topic, heartbeat_ms=200) as stream:
        for number in range(3):
            await stream.beat()
            await producer.send(topic, str(number))
            await stream.events(1)
            since = time.monotonic()
            await stream.beat()
            silences.append(time.monotonic() - since)

    assert min(silences) < 0.3, silences


async def test_one_partition_alone(http: str, admin: Admin, producer: Producer, topic: str) -> None:
    await admin.create_topic(topic, 3)
    async with events(http, topic, partition=1) as stream:
        for partition in (0, 1, 2, 1):
            await send(producer, topic, [partition], partition)

        assert [one.data["partition"] for one in await stream.events(2)] == [1, 1]
        last = stream.last_id
    await send(producer, topic, ["more"], 1)
    async with events(http, topic, partition=1, last_event_id=last) as stream:
        assert await values(stream, 1) == ["more"]


async def test_a_view_is_followed_as_a_topic(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    await admin.create_view(f"{topic}-view", topic, "value LIKE 'y%'")
    async with events(http, f"{topic}-view") as stream:
        await send(producer, topic, ["x1"])
        await send(producer, topic, ["y1"])
        await send(producer, topic, ["x2"])
        await send(producer, topic, ["y2"])

        assert await values(stream, 2) == ["y1", "y2"]
    async with events(http, f"{topic}-view", from_="earliest") as stream:
        assert await values(stream, 2) == ["y1", "y2"]


async def test_only_what_is_committed_is_pushed(
    http: str, admin: Admin, bootstrap: str, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    async with (
        Producer(bootstrap, transactional_id=topic) as producer,
        events(http, topic) as stream,
    ):
        for number in range(6):
            with suppress(LookupError):
                async with producer.transaction():
                    await producer.send(topic, f"{number}a")
                    await producer.send(topic, f"{number}b")
                    if number % 2:
                        raise LookupError("aborted")

        wanted = [f"{number}{letter}" for number in (0, 2, 4) for letter in "ab"]
        assert await values(stream, 6) == wanted
    async with events(http, topic, from_="earliest", heartbeat_ms=100) as stream:
        assert await values(stream, 6) == wanted
        while not stream.last_id.endswith(".0-18"):  # the aborted and the markers count as read
            await stream.beat()


async def test_a_browser_that_comes_back_knows_better_than_its_address(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    await send(producer, topic, range(4))
    async with events(http, topic, from_="earliest") as stream:
        first, _, third, _ = await stream.events(4)

    for given in ({"last_event_id": first.id}, {"from_": "earliest"}, {"offset": 0}):
        async with events(http, topic, header=third.id, limit=1, **given) as stream:
            assert [one.data["value"] for one in await stream.end()] == ["3"]


async def test_a_stream_with_a_limit_ends(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    await send(producer, topic, range(5))
    async with events(http, topic, from_="earliest", limit=3) as stream:
        assert [one.data["offset"] for one in await stream.end()] == [0, 1, 2]
        last = stream.last_id
    async with events(http, topic, last_event_id=last, limit=3) as stream:
        await send(producer, topic, ["new"])
        assert [one.data["offset"] for one in await stream.end()] == [3, 4, 5]


async def test_what_was_deleted_is_told_as_a_gap(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    await send(producer, topic, range(10))
    async with events(http, topic, from_="earliest", limit=2) as stream:
        await stream.end()
        last = stream.last_id
    await admin.delete_records({(topic, 0): 7})

    async with events(http, topic, last_event_id=last) as stream:
        gap, *rest = await stream.events(4)

    assert (gap.kind, gap.data) == ("gap", {"partition": 0, "offset": 2, "next_offset": 7})
    assert [one.data["value"] for one in rest] == ["7", "8", "9"]
    async with events(http, topic, last_event_id=gap.id) as stream:
        assert await values(stream, 3) == ["7", "8", "9"]


async def test_a_topic_that_goes_ends_the_stream_with_an_error(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    async with (
        events(http, topic) as stream,
        events(http, topic, group=topic, from_="earliest") as member,
    ):
        await send(producer, topic, ["last words"])
        for one in (stream, member):
            assert await values(one, 1) == ["last words"]
        last = stream.last_id

        await admin.delete_topic(topic)

        for one in (stream, member):
            (error,) = await one.end()
            assert error.kind == "error"
            assert error.data["status"] in (404, 410), error
            assert error.data["remedy"]
    await admin.create_topic(topic, 1)
    async with events(http, topic, last_event_id=last) as stream:
        assert (stream.status, (await stream.problem())["field"]) == (410, "last_event_id")


async def test_new_partitions_are_followed_from_their_start(
    http: str, admin: Admin, producer: Producer, topic: str, bootstrap: str
) -> None:
    await admin.create_topic(topic, 1)
    async with events(http, topic) as stream:
        await admin.create_partitions(topic, 2)
        await send(producer, topic, ["old"], 0)
        async with Producer(bootstrap) as fresh:
            await send(fresh, topic, ["new"], 1)

        assert sorted(await values(stream, 2)) == ["new", "old"]
        last = stream.last_id
    async with events(http, topic, header=last) as stream:
        assert stream.status == 200, "the node may not have heard of them yet"
        await send(producer, topic, ["later"], 0)
        assert await values(stream, 1) == ["later"]


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ({"offset": 99}, 416, "offset"),
        ({"partition": 9}, 404, "partition"),
        ({"offset": 0, "since": 0}, 400, "since"),
        ({"from_": "later"}, 400, "from"),
        ({"where": "a b c"}, 400, "where"),
        ({"last_event_id": "nonsense"}, 400, "last_event_id"),
        ({"group": "g", "partition": 0}, 400, "partition"),
        ({"limit": 0}, 400, "limit"),
        ({"nonsense": 1}, 400, "nonsense"),
    ],
)
async def test_what_cannot_be_followed_is_refused(
    http: str, admin: Admin, topic: str, query: dict[str, Any], status: int, field: str
) -> None:
    await admin.create_topic(topic, 1)
    async with events(http, topic, **query) as stream:
        problem = await stream.problem()

    assert (stream.status, problem["field"]) == (status, field)
    assert problem["remedy"]


async def test_no_such_topic_is_told_at_once(http: str) -> None:
    async with events(http, "nowhere-at-all") as stream:
        assert stream.status == 404


async def test_members_of_a_group_share_a_topic_and_its_place_is_kept(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    await send(producer, topic, range(5))
    query = {"group": f"{topic}-group", "from_": "earliest"}
    async with events(http, topic, limit=3, **query) as stream:
        assert [one.data["value"] for one in await stream.end()] == ["0", "1", "2"]

    async with events(http, topic, **query) as stream:
        assert await values(stream, 2) == ["3", "4"]
        assert stream.last_id == "", "the group keeps its place, not the member"
