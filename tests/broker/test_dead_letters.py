"""Dead letters in a running broker: once, with what is said of them, and at nobody's cost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.broker.dying import (
    address,
    consuming,
    dead_letters,
    everything,
    fill,
    place,
    running,
    until,
)
from waystation import Admin
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import Offset
from waystation.node.node import Node
from waystation.sharing.persister import Initialize, Read, Write
from waystation.sharing.state_records import Notes, QueueId


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(tmp_path) as started:
        yield started


async def test_notes_that_cannot_be_read_stop_dead_letters_and_nothing_else(node: Node) -> None:
    """A newer version has left them: whoever knows it goes on, and consumers do meanwhile."""
    at, persister = address(node), node.broker.share_persister
    async with Admin(at) as admin:
        await admin.create_queue("orders", 1, dead_letter_topic="dead")
        await admin.create_queue("others", 1)  # the coordinators of states are there from now on
    await fill(at, "others", (None, "x"))
    seen: Counter[bytes] = Counter()
    async with consuming(at, "others", lambda value: seen.update([value]) or "accept"):
        await until(_holds(lambda: seen[b"x"] == 1))
    queue = QueueId("orders", node.broker.image.topic("orders").id, 0)
    assert await _told(persister.initialize, Initialize(queue, 0, Offset(0))) is None
    await _told(persister.read, Read(queue, LeaderEpoch(0)))
    newer = Notes(1, b'{"version":99}')
    write = Write(queue, 0, LeaderEpoch(0), Offset(0), (), newer)
    assert await _told(persister.write, write) is None
    await fill(at, "orders", *((None, f"v{n}") for n in range(6)))

    def fate(value: bytes) -> str:
        seen[value] += 1
        return "reject" if value in (b"v0", b"v1") else "accept"

    async with consuming(at, "orders", fate):
        await until(_holds(lambda: sum(seen[b"v%d" % n] for n in range(6)) >= 6))

        async def are_settled() -> bool:
            host = node.broker.queues.find(*queue)
            return host is not None and host.in_flight == 0 and host.leader is not None

        await until(are_settled)
        assert node.broker.dead_letters.waiting == 2
        assert node.broker.dead_letters._unreadable == {queue: None}
    assert all(seen[b"v%d" % n] == 1 for n in range(6))


def _holds(look: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return look()

    return holds


async def _told(run: Callable[..., None], command: object) -> object:
    told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    run(command, told.set_result)
    return await told


async def test_a_poison_message_is_dead_after_so_many_deliveries_and_others_go_on(
    node: Node,
) -> None:
    at = address(node)
    async with Admin(at) as admin:
        await admin.create_queue(
            "orders", 1, max_deliveries=3, group_configs={"share.dead.letter.topic": "orders.dead"}
        )
    await fill(at, "orders", *((f"k{n}", "poison" if n == 3 else f"v{n}") for n in range(8)))
    deliveries: Counter[bytes] = Counter()

    def fate(value: bytes) -> str:
        deliveries[value] += 1
        return "release" if value == b"poison" else "accept"

    began = node.broker.clock.now()
    async with consuming(at, "orders", fate):

        async def is_over() -> bool:
            return sum(deliveries.values()) == 10 and len(await dead_letters(at, "orders.dead")) > 0

        await until(is_over)

    ((value, origin),) = await dead_letters(at, "orders.dead")
    assert value == b"poison"
    assert origin.source == place("orders")
    assert (origin.offset, origin.group, origin.deliveries) == (3, "orders", 3)
    assert origin.reason == "deliveries-exhausted"
    assert began <= origin.died_at <= node.broker.clock.now()
    (message,) = await everything(at, "orders.dead")
    assert (message.key, message.headers[0]) == (b"k3", ("of", b"poison"))
    source = (await everything(at, "orders"))[3]
    assert origin.timestamp == source.timestamp
    assert deliveries[b"poison"] == 3
    assert node.broker.dead_letters.waiting == 0


async def test_what_a_consumer_rejects_is_dead_at_once_and_says_so(node: Node) -> None:
    at = address(node)
    async with Admin(at) as admin:
        await admin.create_queue("orders", 2, dead_letter_topic="dead")
    await fill(at, "orders", *((f"k{n}", f"v{n}") for n in range(40)))
    async with consuming(at, "orders", lambda _: "reject"):

        async def are_dead() -> bool:
            return len(await dead_letters(at, "dead")) >= 40

        await until(are_dead)

    found = await dead_letters(at, "dead")
    assert sorted(value for value, _ in found if value) == sorted(b"v%d" % n for n in range(40))
    assert {(one.reason, one.deliveries) for _, one in found} == {("rejected", 1)}
    for partition in range(2):
        offsets = [one.offset for _, one in found if one.source == place("orders", partition)]
        assert offsets == sorted(offsets)


async def test_groups_on_one_topic_have_dead_letters_of_their_own(node: Node) -> None:
    at = address(node)
    async with Admin(at) as admin:
        for group, dead in (("one", "dead.one"), ("two", "dead.two")):
            await admin.create_queue("orders", 1, group=group, dead_letter_topic=dead)
    await fill(at, "orders", *((f"k{n}", f"v{n}") for n in range(6)))
    async with (
        consuming(at, "orders", lambda value: fate_of(value, b"v1"), group="one"),
        consuming(at, "orders", lambda value: fate_of(value, b"v4"), group="two"),
    ):

        async def are_dead() -> bool:
            return bool(await dead_letters(at, "dead.one") and await dead_letters(at, "dead.two"))

        await until(are_dead)

    ((first, of_one),) = await dead_letters(at, "dead.one")
    ((second, of_two),) = await dead_letters(at, "dead.two")
    assert (first, of_one.group) == (b"v1", "one")
    assert (second, of_two.group) == (b"v4", "two")


def fate_of(value: bytes, poison: bytes) -> str:
    return "reject" if value == poison else "accept"


async def test_order_per_key_is_kept_with_many_consumers(node: Node) -> None:
    at = address(node)
    async with Admin(at) as admin:
        await admin.create_queue(
            "orders", 1, order_by_key=True, max_deliveries=2, dead_letter_topic="dead"
        )
    await fill(at, "orders", *((f"k{n % 3}", f"v{n}") for n in range(30)))

    def fate(value: bytes) -> str:
        return "release" if int(value[1:]) % 4 else "reject"

    async with (
        consuming(at, "orders", fate),
        consuming(at, "orders", fate),
        consuming(at, "orders", fate),
    ):

        async def are_dead() -> bool:
            return len(await dead_letters(at, "dead")) >= 30

        await until(are_dead)

    found = await everything(at, "dead")
    for key in (b"k0", b"k1", b"k2"):
        numbers = [int((one.value or b"")[1:]) for one in found if one.key == key]
        assert numbers == sorted(numbers)
        assert len(numbers) == 10


async def test_one_that_its_topic_refuses_waits_with_its_key_and_holds_up_no_other(
    node: Node,
) -> None:
    at = address(node)
    async with Admin(at) as admin:
        await admin.create_queue("orders", 1, order_by_key=True, dead_letter_topic="dead")
        await admin.create_topic("dead", 1, configs={"max.message.bytes": "2000"})
    large = "x" * 3_000
    await fill(at, "orders", ("a", "a0"), ("b", large), ("b", "b1"), ("a", "a2"), ("c", "c0"))
    async with consuming(at, "orders", lambda _: "reject"):

        async def others_are_dead() -> bool:
            return len(await dead_letters(at, "dead")) == 3

        await until(others_are_dead)
        assert node.broker.dead_letters.waiting == 2
        async with Admin(at) as admin:
            await admin.alter_configs("dead", unset=["max.message.bytes"])
        for desk in node.broker.dead_letters._desks.values():
            desk._put_off = dict.fromkeys(desk._put_off, node.broker.clock.now())

        async def all_are_dead() -> bool:
            return len(await dead_letters(at, "dead")) == 5

        await until(all_are_dead)

    values = [value for value, _ in await dead_letters(at, "dead")]
    assert set(values[:3]) == {b"a0", b"a2", b"c0"}
    assert values.index(b"a0") < values.index(b"a2")
    assert values[3:] == [large.encode(), b"b1"]


async def test_a_flood_is_stopped_by_the_breaker_which_closes_by_itself(node: Node) -> None:
    at = address(node)
    rules = {
        "share.dead.letter.breaker.part": "0.5",
        "share.dead.letter.breaker.least": "5",
        "share.dead.letter.breaker.pause.ms": "1500",
    }
    async with Admin(at) as admin:
        await admin.create_queue(
            "orders", 1, max_deliveries=1, dead_letter_topic="dead", group_configs=rules
        )
    await fill(at, "orders", *((f"k{n}", f"v{n}") for n in range(100)))
    is_healthy = False
    accepted: set[bytes] = set()

    def fate(value: bytes) -> str:
        if is_healthy:
            accepted.add(value)
        return "accept" if is_healthy else "reject"

    async with consuming(at, "orders", fate):

        async def is_open() -> bool:
            return len(node.broker.dead_letters._open) == 1

        await until(is_open)
        flooded = len(await dead_letters(at, "dead"))
        is_healthy = True

        async def are_all_through() -> bool:
            return len(accepted) + len(await dead_letters(at, "dead")) == 100

        await until(are_all_through)

        async def is_closed() -> bool:
            return not node.broker.dead_letters._open

        await until(is_closed)

    assert flooded < 15
    assert len(await dead_letters(at, "dead")) == flooded


async def test_what_retention_takes_meanwhile_holds_up_nobody(node: Node) -> None:
    at = address(node)
    async with Admin(at) as admin:
        await admin.create_queue("orders", 1, dead_letter_topic="dead")
        await admin.create_topic("dead", 1, configs={"min.insync.replicas": "2"})
    await fill(at, "orders", *((f"k{n}", f"v{n}") for n in range(10)))
    async with consuming(at, "orders", lambda _: "reject"):

        async def are_waiting() -> bool:
            return node.broker.dead_letters.waiting == 10

        await until(are_waiting)
        async with Admin(at) as admin:
            await admin.delete_records({("orders", 0): 4})
            await admin.alter_configs("dead", unset=["min.insync.replicas"])

        async def is_over() -> bool:
            return node.broker.dead_letters.waiting == 0

        await until(is_over)

    assert [value for value, _ in await dead_letters(at, "dead")] == [
        b"v%d" % n for n in range(4, 10)
    ]


@pytest.mark.parametrize("topic", ["orders", "__consumer_offsets"])
async def test_dead_letters_wait_where_no_topic_can_take_them(node: Node, topic: str) -> None:
    at = address(node)
    async with Admin(at) as admin:
        await admin.create_queue("orders", 1, group_configs={"share.dead.letter.topic": topic})
    await fill(at, "orders", ("k", "v0"), ("k", "v1"))
    async with consuming(at, "orders", lambda value: fate_of(value, b"v0")):

        async def is_waiting() -> bool:
            return node.broker.dead_letters.waiting == 1

        await until(is_waiting)
        async with Admin(at) as admin:
            await admin.alter_configs(group="orders", set={"share.dead.letter.topic": "dead"})

        async def is_dead() -> bool:
            return len(await dead_letters(at, "dead")) == 1

        await until(is_dead)
