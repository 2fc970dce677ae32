"""The inbox in Python: the same as over HTTP, whoever sends and whoever receives."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.http_client import HttpClient

from waystation import Admin
from waystation.client.inbox import Inbox, InboxMessage, MessageGoneError
from waystation.model.errors import InvalidRequestError
from waystation.testing.process import BrokerProcess


@pytest.fixture
async def inbox(bootstrap: str) -> AsyncIterator[Inbox]:
    async with Inbox(bootstrap) as running:
        yield running


def texts(messages: list[InboxMessage]) -> list[str | None]:
    return [one.message for one in messages]


async def test_both_ways_lead_to_one_inbox(inbox: Inbox, broker: BrokerProcess, topic: str) -> None:
    ann, bob = f"{topic}-ann", f"{topic}-bob/é"
    first = await inbox.send(ann, bob, "by Python")
    with HttpClient(broker.http) as http:
        sent = http.post("/send", {"from_user": ann, "to_user": bob, "message": "by HTTP"})
        told = http.post("/receive", {"user_id": bob}, "GET").json["messages"]
    second = sent.json["message_id"]

    received = await inbox.receive(bob)

    assert [one.message_id for one in received] == [first, second]
    assert [one["message_id"] for one in told] == [first, second]
    assert [(one.from_user, one.to_user) for one in received] == [(ann, bob)] * 2
    assert texts(received) == [one["message"] for one in told] == ["by Python", "by HTTP"]
    assert await inbox.receive(ann) == []


async def test_who_goes_on_behind_an_id_misses_nothing(inbox: Inbox, topic: str) -> None:
    ids = [await inbox.send("ann", topic, str(number)) for number in range(5)]

    assert texts(await inbox.receive(topic, after=ids[1])) == ["2", "3", "4"]
    assert texts(await inbox.receive(topic, after=ids[1], limit=2)) == ["2", "3"]
    assert await inbox.receive(topic, after=ids[-1], wait_ms=50) == []


async def test_who_waits_is_woken_and_holds_up_nobody(inbox: Inbox, topic: str) -> None:
    users = [f"{topic}-{number}" for number in range(3)]
    waiting = [asyncio.ensure_future(inbox.receive(user, wait_ms=30_000)) for user in users]
    async with asyncio.timeout(20):
        for user in users:
            await inbox.send("ann", user, f"to {user}")
        assert [texts(await one) for one in waiting] == [[f"to {user}"] for user in users]


async def test_ids_that_do_not_fit_are_told(inbox: Inbox, topic: str) -> None:
    one = await inbox.send("ann", topic, "1")

    with pytest.raises(InvalidRequestError, match="another user"):
        await inbox.receive(f"{topic}-2", after=one)
    with pytest.raises(InvalidRequestError, match="not the id of a message"):
        await inbox.receive(topic, after="garbage")
    with pytest.raises(InvalidRequestError, match="to_user has 0 characters"):
        await inbox.send("ann", "", "x")


async def test_an_inbox_that_was_deleted_begins_anew(tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path / "data", options={"inbox.partitions": "3", "inbox.topic": "in"}
    )
    with broker.start():
        await _lives_and_begins_anew(broker.bootstrap)


async def _lives_and_begins_anew(bootstrap: str) -> None:
    async with Inbox(bootstrap, metadata_timeout_ms=1_000) as inbox, Admin(bootstrap) as admin:
        old = await inbox.send("ann", "bob", "before")
        assert len((await admin.describe_topic("in")).partitions) == 3, "as the broker says"
        await admin.delete_records({("in", partition): None for partition in range(3)})
        assert await inbox.receive("bob", after=old) == [], "truncation took it"

        await admin.delete_topic("in")

        with pytest.raises(MessageGoneError):
            await inbox.receive("bob", after=old)
        new = await inbox.send("ann", "bob", "after")
        assert texts(await inbox.receive("bob")) == ["after"]
        assert new != old


async def test_who_gives_up_waiting_holds_nobody_up(inbox: Inbox, topic: str) -> None:
    last = await inbox.send("ann", topic, "hello")
    assert await inbox.receive(topic, after=last, wait_ms=1) == []
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await inbox.receive(topic, after=last, wait_ms=20_000)

    async with asyncio.timeout(5):
        assert await inbox.receive(topic, after=last, wait_ms=10) == []
