"""Sending dead letters back in a running broker: once, in order, as chosen, over restarts."""

import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from tests.broker.dying import address, consuming, dead_letters, everything, fill, running, until
from waystation import Admin, Queue
from waystation.client.dead_letters import DeadLetters
from waystation.model.errors import InvalidRequestError, WaystationError
from waystation.node.node import Node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(tmp_path) as started:
        yield started


async def make_dead(at: str, count: int, partitions: int = 2) -> None:
    """Messages of five keys that a consumer of ``orders`` has rejected."""
    async with Admin(at) as admin:
        await admin.create_queue("orders", partitions, dead_letter_topic="dead")
    await fill(at, "orders", *((f"k{n % 5}", f"v{n}") for n in range(count)))
    async with consuming(at, "orders", lambda _: "reject"):

        async def are_dead() -> bool:
            return len(await dead_letters(at, "dead")) >= count

        await until(are_dead)


async def is_over(dead: DeadLetters) -> bool:
    return not any(one.is_running for one in await dead.progress())


async def test_what_is_sent_back_goes_once_however_often_it_is_asked_for(node: Node) -> None:
    at = address(node)
    await make_dead(at, 60)

    async with Admin(at) as admin:
        dead = admin.dead_letters("dead")
        for redrive_id in ("first", "first", "second"):
            await dead.redrive(redrive_id)
            await until(partial(is_over, dead))

        assert [(one.id, one.state, one.moved) for one in await dead.progress()] == [
            ("second", "done", 0),
            ("second", "done", 0),
        ]
        assert [one async for one in dead.all()] == []
        assert len([one async for one in dead.all(redriven=True)]) == 60
    found = await everything(at, "orders")
    assert len(found) == 120
    for partition in range(2):
        values = [one.value for one in found if one.partition == partition]
        assert values[: len(values) // 2] == values[len(values) // 2 :]
    again = found[-1]
    assert again.headers == (("of", again.value), ("__dlq.redrives", b"1"))


async def test_a_filter_and_a_range_choose_and_another_topic_takes_by_key(node: Node) -> None:
    at = address(node)
    await make_dead(at, 50)

    async with Admin(at) as admin:
        await admin.create_topic("elsewhere", 3)
        dead = admin.dead_letters("dead")
        await dead.redrive("some", where="key = 'k2'", to="elsewhere", first=3)
        await until(partial(is_over, dead))

        moved = sum(one.moved for one in await dead.progress())
        left = [one async for one in dead.all()]
    found = await everything(at, "elsewhere")
    assert {one.key for one in found} == {b"k2"}
    assert len({one.partition for one in found}) == 1
    numbers = [int((one.value or b"")[1:]) for one in found]
    assert numbers == sorted(numbers)
    assert len(found) == moved < 10
    assert len(left) == 50 - moved
    assert all(one.message.offset < 3 for one in left if one.message.key == b"k2")


async def test_a_rate_is_kept_and_an_order_can_be_cancelled(node: Node) -> None:
    at = address(node)
    await make_dead(at, 40)

    async with Admin(at) as admin:
        dead = admin.dead_letters("dead")
        await dead.redrive("slow", rate=2.0)
        with pytest.raises(InvalidRequestError, match="slow"):
            await dead.redrive("impatient")

        async def has_begun() -> bool:
            return sum(one.moved for one in await dead.progress()) > 0

        await until(has_begun)
        cancelled = await dead.cancel("slow")
        await until(partial(is_over, dead))

        assert {one.state for one in cancelled} == {"cancelled"}
        moved = sum(one.moved for one in await dead.progress())
        assert moved < 10
        assert len(await everything(at, "orders")) == 40 + moved
        await dead.redrive("rest")
        await until(partial(is_over, dead))
    assert len(await everything(at, "orders")) == 80


async def test_one_busy_partition_gets_the_whole_rate(node: Node) -> None:
    """The others are done at once, and leave their parts to it; a little later, to be safe."""
    at, count, rate = address(node), 28, 14.0
    async with Admin(at) as admin:
        await admin.create_queue("orders", 4, dead_letter_topic="dead")
    await fill(at, "orders", *(("k", f"v{n}") for n in range(count)))
    async with consuming(at, "orders", lambda _: "reject"):

        async def are_dead() -> bool:
            return len(await dead_letters(at, "dead")) >= count

        await until(are_dead)
    async with Admin(at) as admin:
        dead = admin.dead_letters("dead")
        began = time.monotonic()
        await dead.redrive("busy", rate=rate)
        await until(partial(is_over, dead))
        took_s = time.monotonic() - began

        moved = [one.moved for one in await dead.progress()]
    assert sorted(moved) == [0, 0, 0, count]
    assert (count - rate) / rate < took_s < count / (rate / 4)


async def test_an_order_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Whether or not a group still names the topic for its dead letters."""
    async with running(tmp_path) as node:
        await make_dead(address(node), 40)
        async with Admin(address(node)) as admin:
            await admin.dead_letters("dead").redrive("long", rate=20.0)
            await admin.alter_configs(group="orders", unset=["share.dead.letter.topic"])
    async with running(tmp_path) as node:
        at = address(node)

        async def are_back() -> bool:
            return len(await everything(at, "orders")) == 80

        await until(are_back)
        async with Admin(at) as admin:
            dead = admin.dead_letters("dead")
            await until(partial(is_over, dead))
            assert sum(one.moved for one in await dead.progress()) == 40
            assert len(await everything(at, "orders")) == 80


@pytest.mark.parametrize(
    ("order", "culprit"),
    [
        ({"where": "key = "}, "key = "),
        ({"to": "nowhere"}, "nowhere"),
        ({"to": "dead"}, "itself"),
        ({"first": 9, "end": 3}, "9"),
        ({"rate": -1.0}, "-1"),
    ],
)
async def test_an_order_that_cannot_be_meant_is_refused(
    node: Node, order: dict[str, object], culprit: str
) -> None:
    at = address(node)
    async with Admin(at, metadata_timeout_ms=500) as admin:
        await admin.create_topic("dead", 1)
        with pytest.raises(WaystationError, match=culprit):
            await admin.dead_letters("dead").redrive("bad", **order)  # type: ignore[arg-type]
        assert await admin.dead_letters("dead").progress() == []


async def test_what_its_topic_refuses_stays_with_its_key_and_is_counted(node: Node) -> None:
    at, large = address(node), "x" * 3_000
    async with Admin(at) as admin:
        await admin.create_queue("orders", 1, dead_letter_topic="dead")
        await fill(at, "orders", ("a", "a0"), ("b", large), ("b", "b1"), ("a", "a2"))
        async with consuming(at, "orders", lambda _: "reject"):

            async def are_dead() -> bool:
                return len(await dead_letters(at, "dead")) == 4

            await until(are_dead)
        await admin.alter_configs("orders", set={"max.message.bytes": "2000"})
        dead = admin.dead_letters("dead")
        await dead.redrive("first")
        await until(partial(is_over, dead))
        (first,) = await dead.progress()
        assert (first.state, first.moved, first.refused) == ("done", 2, 2)
        assert [one.message.key for one in [one async for one in dead.all()]] == [b"b", b"b"]

        await admin.alter_configs("orders", unset=["max.message.bytes"])
        await dead.redrive("second")
        await until(partial(is_over, dead))
        (second,) = await dead.progress()
        assert (second.moved, second.refused) == (2, 0)
    values = [one.value for one in await everything(at, "orders")]
    assert values[4:] == [b"a0", b"a2", large.encode(), b"b1"]


async def test_one_topic_takes_the_dead_letters_of_several_and_gives_them_back(node: Node) -> None:
    at = address(node)
    async with Admin(at) as admin:
        await admin.create_topic("dead", 2)
        for topic in ("orders", "mails"):
            await admin.create_queue(topic, 3, dead_letter_topic="dead")
            await fill(at, topic, *((f"k{n}", f"{topic}{n}") for n in range(30)))
        async with (
            consuming(at, "orders", lambda _: "reject"),
            consuming(at, "mails", lambda _: "reject"),
        ):

            async def are_dead() -> bool:
                return len(await dead_letters(at, "dead")) == 60

            await until(are_dead)
        dead = admin.dead_letters("dead")
        await dead.redrive("all")
        await until(partial(is_over, dead))
        assert sum(one.moved for one in await dead.progress()) == 60
    for topic in ("orders", "mails"):
        found = await everything(at, topic)
        for partition in range(3):
            values = [one.value for one in found if one.partition == partition]
            assert values[: len(values) // 2] == values[len(values) // 2 :]


async def test_a_redrive_to_a_topic_that_is_gone_fails_and_says_what_helps(node: Node) -> None:
    at = address(node)
    await make_dead(at, 4, partitions=1)
    async with Admin(at) as admin:
        await admin.delete_topic("orders")
        dead = admin.dead_letters("dead")
        await dead.redrive("back")
        await until(partial(is_over, dead))
        (one,) = await dead.progress()

        assert (one.state, one.moved) == ("failed", 0)
        assert "orders" in one.problem
        assert "--to" in one.problem
        assert len([left async for left in dead.all()]) == 4


async def test_nobody_reads_the_queue_of_what_went_back(node: Node) -> None:
    async with Admin(address(node)) as admin:
        await admin.create_topic("orders", 1)
    async with Queue("orders", address(node), group="__redrive") as queue:
        with pytest.raises(WaystationError, match="cluster's own"):
            await queue.receive()
