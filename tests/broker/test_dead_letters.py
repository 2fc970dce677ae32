"""Dead letters in a running broker: once, with what is said of them, and at nobody's cost."""

from collections import Counter
from collections.abc import AsyncIterator
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
from waystation.node.node import Node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(tmp_path) as started:
        yield started


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
