"""Dead letters while brokers die: each is in its dead-letter topic once, and goes back once."""

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.broker.dying import consuming, everything, fill, until
from tests.support.soak import count
from waystation import Admin, Message
from waystation.broker.broker import Broker
from waystation.client.dead_letters import DeadLetters
from waystation.model.errors import WaystationError
from waystation.testing.cluster import LocalCluster
from waystation.testing.process import BrokerProcess

_SMALL = {
    "share.coordinator.state.topic.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
}

# A crowded machine makes brokers late, and who is late loses its lease.
_LEASE = "broker.session.timeout.ms"


def values_of(messages: list[Message]) -> Counter[bytes]:
    return Counter(one.value or b"" for one in messages)


async def seen(bootstrap: str, topic: str) -> list[Message]:
    """What is in a topic, whoever has to be asked by now."""
    while True:
        try:
            return await everything(bootstrap, topic)
        except WaystationError:
            await asyncio.sleep(0.1)


async def are_all_in(bootstrap: str, topic: str, least: int) -> None:
    async def are_there() -> bool:
        return len(await seen(bootstrap, topic)) >= least

    await until(are_there, 60.0)


async def test_a_broker_dies_between_decision_and_delivery(tmp_path: Path) -> None:
    """The decision is stored, the dead-letter topic takes nothing: the next life delivers."""
    async with LocalCluster(tmp_path, 1, options={**_SMALL, _LEASE: "6000"}) as cluster:
        at = cluster.bootstrap
        async with Admin(at) as admin:
            await admin.create_queue("orders", 1, dead_letter_topic="dead")
            await admin.create_topic("dead", 1, configs={"min.insync.replicas": "2"})
        await fill(at, "orders", *((f"k{n}", f"v{n}") for n in range(20)))
        broker = cluster.nodes[1].broker
        async with consuming(at, "orders", lambda _: "reject"):

            async def is_decided() -> bool:
                return has_decided(broker) and broker.dead_letters.waiting == 20

            await until(is_decided)
        await cluster.kill(1)
        await cluster.start(1)
        async with Admin(at) as admin:
            await admin.alter_configs(topic="dead", unset=["min.insync.replicas"])
        await are_all_in(at, "dead", 20)  # although no consumer comes

        async def is_let_go() -> bool:
            return len(cluster.nodes[1].broker.queues) == 0

        await until(is_let_go)
        found = await seen(at, "dead")
    assert [one.value for one in found] == [b"v%d" % n for n in range(20)]


def has_decided(broker: Broker) -> bool:
    """Whether a batch of dead letters is on its way, and that is stored."""
    for host in broker.queues:
        leader = host.leader
        if leader is not None and b'"lanes":[[' in leader.notes.content:
            return leader.queue.stored == leader.queue.version
    return False


@pytest.mark.parametrize("seed", range(count(1, 8)))
async def test_kill_9_at_any_moment(tmp_path: Path, seed: int) -> None:
    chance, messages = Random(seed), count(150, 600)
    broker = BrokerProcess(tmp_path / "data", options=_SMALL, volatile=True).start()
    try:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_queue("orders", 2, dead_letter_topic="dead")
        await fill(broker.bootstrap, "orders", *((f"k{n % 7}", f"v{n}") for n in range(messages)))
        async with consuming(broker.bootstrap, "orders", lambda _: "reject"):
            for _ in range(count(2, 5)):
                await asyncio.sleep(chance.uniform(0.05, 0.4))
                broker.kill()
                broker.start()
            await are_all_in(broker.bootstrap, "dead", messages)
        found = await seen(broker.bootstrap, "dead")
    finally:
        broker.stop()
    assert values_of(found) == {b"v%d" % n: 1 for n in range(messages)}


async def test_leaders_of_source_target_and_state_die(tmp_path: Path) -> None:
    """Three brokers: dead letters, and sending them back, over failovers."""
    messages = count(90, 600)
    options = {**_SMALL, _LEASE: "2000", "share.coordinator.state.topic.replication.factor": "3"}
    async with LocalCluster(tmp_path, 3, options=options) as cluster:
        at = cluster.bootstrap
        async with Admin(at) as admin:
            await admin.create_queue(
                "orders", 3, replication_factor=3, group_configs={"share.dead.letter.topic": "dead"}
            )
        await fill(at, "orders", *((f"k{n % 9}", f"v{n}") for n in range(messages)))
        async with consuming(at, "orders", lambda _: "reject"):
            await are_all_in(at, "dead", 1)
            for topic in ("orders", "dead", "__share_group_state"):
                await fail_over(cluster, topic)
            await trouble(cluster, Random(1), count(0, 12))
            await are_all_in(at, "dead", messages)
        found = await seen(at, "dead")
        assert values_of(found) == {b"v%d" % n: 1 for n in range(messages)}
        async with Admin(at) as admin:
            dead = admin.dead_letters("dead")
            await dead.redrive("back", rate=messages / 3)
            for topic in ("dead", "orders"):
                await fail_over(cluster, topic)
            await trouble(cluster, Random(2), count(0, 6))
            await until(lambda: is_over(dead), 60.0)
            moved = sum(one.moved for one in await dead.progress())
        back = await seen(at, "orders")
    assert moved == messages
    assert values_of(back) == {b"v%d" % n: 2 for n in range(messages)}
    for key in {one.key for one in back}:
        numbers = [one.value for one in back if one.key == key]
        assert numbers[: len(numbers) // 2] == numbers[len(numbers) // 2 :], "another order"


async def fail_over(cluster: LocalCluster, topic: str) -> None:
    """Kill who leads a topic's first partition, and bring it back once another does."""
    dead = cluster.leader(topic)
    assert dead is not None, f"nobody leads {topic}"
    await cluster.kill(dead)
    await cluster.until(lambda: cluster.leader(topic) not in (None, dead))
    await cluster.start(dead)
    await cluster.until(
        lambda: all(
            len(one.in_sync) == 3
            for name in ("orders", "dead", "__share_group_state")
            for one in cluster.image.topics[name].partitions
        ),
        within_s=30.0,
    )


async def trouble(cluster: LocalCluster, chance: Random, times: int) -> None:
    """Kill brokers, or stop them, and bring each back before the next."""
    for _ in range(times):
        await asyncio.sleep(chance.uniform(0.0, 1.0))
        one = chance.choice(list(cluster.nodes))
        await (cluster.kill(one) if chance.random() < 0.5 else cluster.stop(one))
        await asyncio.sleep(chance.uniform(0.0, 2.0))
        await cluster.start(one)


async def is_over(dead: DeadLetters) -> bool:
    try:
        return not any(one.is_running for one in await dead.progress())
    except WaystationError:
        return False
