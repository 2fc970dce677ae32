"""Topics over real WebSockets: credit, groups, sending, and what is refused."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import websockets
from tests.support.push_client import PushSocket, events, socket

from waystation.client.admin import Admin
from waystation.client.producer import Producer
from waystation.testing.process import BrokerProcess


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


async def send(producer: Producer, topic: str, values: Any, partition: int = 0) -> None:
    await asyncio.gather(*[producer.send(topic, str(one), partition=partition) for one in values])


async def messages(talk: PushSocket, count: int) -> list[str]:
    return [one["value"] for one in await talk.frames("message", count)]


async def is_silent(talk: PushSocket) -> bool:
    """Whether nothing was pushed before the answer to something that is asked now."""
    await talk.say(type="credit", ref="nonsense", messages=-1)
    told = await talk.hear()
    return told["type"] == "error" and told["ref"] == "nonsense"


def texts(numbers: Any) -> list[str]:
    return [str(one) for one in numbers]


async def test_nothing_is_pushed_beyond_the_credit(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    """At the end of the topic, behind it, and in the midst of a batch."""
    await admin.create_topic(topic, 1)
    await send(producer, topic, range(10))
    async with socket(http, f"topics/{topic}", from_="earliest") as talk:
        await talk.frames("ready")
        assert await is_silent(talk)

        await talk.say(type="credit", messages=3)
        assert await messages(talk, 3) == texts(range(3))
        assert await is_silent(talk)

        await talk.say(type="credit", messages=9)
        assert await messages(talk, 7) == texts(range(3, 10))
        await send(producer, topic, range(10, 20))
        assert await messages(talk, 2) == texts(range(10, 12))
        assert await is_silent(talk)

        await talk.say(type="credit", messages=100)
        assert await messages(talk, 8) == texts(range(12, 20))


async def test_much_that_comes_at_once_is_all_heard_in_order(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    """More than one turn of the loop looks at: credit, messages of any length, and a mistake."""
    await admin.create_topic(topic, 1)
    long = "x" * 300_000
    async with socket(http, f"topics/{topic}") as talk:
        await talk.frames("ready")
        told = [{"type": "credit", "messages": 1}] * 3_000
        told += [{"type": "send", "message": {"value": value}} for value in (long, "short")]
        async with asyncio.TaskGroup() as saying:
            for one in [*told, {"type": "credit", "messages": 0, "ref": "last"}]:
                saying.create_task(talk.say(**one))
        frames = [await talk.hear() for _ in range(5)]
        assert {one["value"] for one in frames if one["type"] == "message"} == {long, "short"}
        assert [one["ref"] for one in frames if one["type"] == "error"] == ["last"]

        await send(producer, topic, range(3_100))
        assert await messages(talk, 2_998) == texts(range(2_998))
        assert await is_silent(talk)


async def test_ids_are_those_of_events_and_go_on_exactly(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 2)
    async with socket(http, f"topics/{topic}", credit=100) as talk:
        await talk.frames("ready")
        for number in range(10):
            await producer.send(topic, str(number), partition=number % 2)
        found = await talk.frames("message", 10)

    async with events(http, topic, last_event_id=found[4]["id"]) as stream:
        rest = [one.data["value"] for one in await stream.events(5)]
    async with socket(http, f"topics/{topic}", credit=9, last_event_id=found[4]["id"]) as talk:
        assert sorted(await messages(talk, 5)) == sorted(rest)
    assert {one["value"] for one in found[:5]} | set(rest) == set(texts(range(10)))


async def test_filters_and_credit_go_together(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    async with socket(http, f"topics/{topic}", where="value LIKE '%5'", credit=2) as talk:
        await talk.frames("ready")
        await send(producer, topic, range(50))

        assert await messages(talk, 2) == ["5", "15"]
        assert await is_silent(talk)
        await talk.say(type="credit", messages=5)
        assert await messages(talk, 3) == ["25", "35", "45"]


async def test_messages_are_sent_over_the_same_socket(http: str, admin: Admin, topic: str) -> None:
    await admin.create_topic(topic, 1)
    async with socket(http, f"topics/{topic}", credit=10, values="json") as talk:
        await talk.frames("ready")
        for number in range(5):
            await talk.say(type="send", ref=number, message={"value": {"n": number}})

        told = [await talk.hear() for _ in range(10)]
        sent = {one["ref"]: one["offset"] for one in told if one["type"] == "sent"}
        pushed = [one["value"]["n"] for one in told if one["type"] == "message"]
        assert sent == {number: number for number in range(5)}
        assert pushed == list(range(5))


async def test_a_member_commits_what_it_processed_and_the_rest_comes_again(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    await send(producer, topic, range(10))
    query = {"group": f"{topic}-group", "from_": "earliest", "credit": 10}
    async with socket(http, f"topics/{topic}", **query) as talk:
        assert (await talk.frames("partitions"))[0]["assigned"] == [0]
        assert await messages(talk, 10) == texts(range(10))
        await talk.say(type="commit", ref="c", positions=[{"partition": 0, "offset": 4}])
        assert (await talk.frames("committed"))[0]["ref"] == "c"

    async with socket(http, f"topics/{topic}", **query) as talk:
        assert await messages(talk, 6) == texts(range(4, 10))


async def test_a_group_over_sockets_shares_and_rebalances(
    http: str, admin: Admin, producer: Producer, topic: str
) -> None:
    await admin.create_topic(topic, 4)
    query = {"group": f"{topic}-group", "credit": 1_000}

    async def until_has(talk: PushSocket, owned: set[int], count: int) -> None:
        while len(owned) != count:
            (told,) = await talk.frames("partitions")
            owned |= set(told.get("assigned", ()))
            owned -= set(told.get("revoked", ()))

    async with socket(http, f"topics/{topic}", **query) as first:
        mine = set[int]()
        await until_has(first, mine, 4)
        async with socket(http, f"topics/{topic}", **query) as second:
            others = set[int]()
            await asyncio.gather(until_has(first, mine, 2), until_has(second, others, 2))
            assert mine | others == {0, 1, 2, 3}
            for partition in range(4):
                await send(producer, topic, [partition], partition)

            assert set(await messages(first, 2)) == set(texts(mine))
            assert set(await messages(second, 2)) == set(texts(others))
        await until_has(first, mine, 4)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ('{"type":"credit","messages":0}', "messages"),
        ('{"type":"credit","messages":1,"more":2}', "more"),
        ('{"type":"credit"}', "messages"),
        ('{"type":"ack","ids":["0-1"]}', "type"),
        ('{"messages":1}', "type"),
        ('{"type":"commit","positions":[{"partition":0,"offset":1}]}', "type"),
        ('{"type":"send","message":{"valu":1}}', "message.valu"),
        ('{"type":"send","message":{}}', "message.value"),
        ('{"type":"credit","messages":1000000}', "messages"),
        ("[1,2", "body"),
        ("\x00", "body"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_the_socket_goes_on(
    http: str, admin: Admin, topic: str, said: str, field: str
) -> None:
    await admin.create_topic(topic, 1)
    async with socket(http, f"topics/{topic}", credit=5) as talk:
        await talk.frames("ready")
        await talk.connection.send(said)
        told = await talk.hear()
        assert (told["type"], told["status"]) == ("error", 400)
        assert told["field"] == field
        assert told["remedy"]

        await talk.say(type="send", message={"value": "still here"})
        assert await messages(talk, 1) == ["still here"]


async def test_a_topic_that_goes_closes_the_socket_with_its_reason(
    http: str, admin: Admin, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    async with (
        socket(http, f"topics/{topic}", credit=5) as talk,
        socket(http, f"topics/{topic}", group=topic) as member,
    ):
        await talk.frames("ready")
        await member.frames("partitions")
        await admin.delete_topic(topic)

        for one in (talk, member):
            (error,) = await one.frames("error")
            await one.connection.wait_closed()
            assert error["status"] in (404, 410)
            assert one.connection.close_code == 1008


async def test_what_cannot_be_followed_is_refused_before_the_socket_opens(
    http: str, admin: Admin, topic: str
) -> None:
    await admin.create_topic(topic, 1)
    for query, status in (({"offset": 7}, 416), ({"credit": -1}, 400), ({"where": "("}, 400)):
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with socket(http, f"topics/{topic}", **query):
                pass
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body)["remedy"]
    with pytest.raises(websockets.InvalidStatus):
        async with socket(http, "topics/nowhere-at-all"):
            pass
