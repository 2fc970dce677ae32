"""Batches on their way between brokers: each arrives once, whatever is lost or forgotten."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.scheduled import after, at, delivered, leads, schedule, values
from waystation.broker.broker import Broker
from waystation.broker.moving import Courier
from waystation.cluster.topics import TopicSpec
from waystation.model.errors import WaystationError
from waystation.model.ids import NodeId, TopicPartition
from waystation.records.batch import BatchBuilder
from waystation.records.header import batches
from waystation.scheduling.mover import Outcome
from waystation.scheduling.records import Doubted, Settled, Withdrawn, read_decision
from waystation.testing.cluster import LocalCluster

# Leases that outlive a busy machine: only who is killed loses what it leads.
OPTIONS = {"schedule.trust.ms": "1000", "broker.session.timeout.ms": "4000"}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path, 3, options=OPTIONS) as running:
        yield running


def batch_of(value: bytes) -> bytes:
    builder = BatchBuilder()
    assert builder.append(None, value, (), timestamp=0)
    return builder.build()


async def make(cluster: LocalCluster, target_leader: int) -> Broker:
    """Messages wait at node 1, for a topic led by another, or not; the broker of node 1."""
    broker = cluster.nodes[1].broker
    others = [NodeId(one) for one in cluster.ids if one != target_leader]
    specs = [
        TopicSpec("orders.delay", assignments=[(0, [NodeId(1), NodeId(2), NodeId(3)])]),
        TopicSpec(
            "orders",
            assignments=[(0, [NodeId(target_leader), *others])],
            options={"schedule.enable": "true"},
        ),
    ]
    outcomes = await broker.topics.create(specs)
    assert not [one for one in outcomes.values() if isinstance(one, WaystationError)], outcomes
    await cluster.until(lambda: leads(broker, "orders", 0))
    holder = cluster.nodes[target_leader].broker
    await cluster.until(lambda: holder.replicas.find("orders", 0) is not None)
    return broker


def decisions(broker: Broker) -> list[str]:
    """The kinds of decisions in the companion's log, doubts and what became of them."""
    partition = broker.replicas.get("orders.delay", 0)
    found = partition.read(partition.log_start, 1 << 20, at_least_one=True)
    chunk = b"" if found.region is None else found.region.read()
    all_of_them = [read_decision(chunk, at) for at, header in batches(chunk) if header.is_control]
    return [
        type(one).__name__ for one in all_of_them if isinstance(one, Doubted | Settled | Withdrawn)
    ]


def has_all(broker: Broker, count: int = 800) -> bool:
    """Whether the broker has the messages in its book."""
    return any(
        keeper.schedule is not None and keeper.schedule.applied >= count
        for keeper in broker.schedules.keepers()
    )


async def test_a_topic_that_another_broker_leads_gets_its_messages(cluster: LocalCluster) -> None:
    broker = await make(cluster, 2)
    far = cluster.nodes[2].broker

    schedule(broker, *((value, after(20)) for value in values(100)))
    await cluster.until(lambda: len(delivered(far)) >= 100)

    assert delivered(far) == values(100)


@pytest.mark.parametrize("victim", [1, 2], ids=["who-waits", "who-is-delivered-to"])
async def test_a_leader_that_is_killed_in_the_middle_costs_and_doubles_nothing(
    cluster: LocalCluster, victim: int
) -> None:
    """Everybody keeps the index, so the next leader goes on at once."""
    broker = await make(cluster, 2)
    now = broker.clock.now()
    schedule(broker, *((value, at(now + 400 + n)) for n, value in enumerate(values(800))))
    await cluster.until(lambda: all(has_all(node.broker) for node in cluster.nodes.values()))

    await asyncio.sleep(0.8)  # in the middle of it, by the clock on the wall
    await cluster.kill(victim)
    alive = cluster.nodes[3].broker
    await cluster.until(lambda: len(delivered(alive)) >= 800, 60)

    assert Counter(delivered(alive)) == Counter(values(800))
    assert delivered(alive) == values(800)


@pytest.mark.parametrize("target_leader", [1, 2], ids=["here", "elsewhere"])
@pytest.mark.parametrize("arrives", [True, False], ids=["arrived", "lost"])
async def test_a_batch_of_unknown_fate_is_searched_for_before_it_is_sent_again(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, arrives: bool, target_leader: int
) -> None:
    broker = await make(cluster, target_leader)
    target = cluster.nodes[target_leader].broker
    courier, sends = broker.courier, 0
    real = Courier.send

    async def send(batch: bytes, name: TopicPartition) -> Outcome:
        nonlocal sends
        sends += 1
        if sends > 1:
            return await real(courier, batch, name)
        if arrives:
            assert await real(courier, batch, name) is Outcome.DONE
        await asyncio.sleep(1.2)  # longer than the target is trusted to remember
        return Outcome.UNCLEAR

    monkeypatch.setattr(courier, "send", send)
    schedule(broker, (b"first", after(1)))
    await cluster.until(lambda: "Doubted" in decisions(broker) and sends >= 2 - arrives)
    schedule(broker, (b"second", after(1)))
    await cluster.until(lambda: len(delivered(target)) >= 2)

    assert delivered(target) == [b"first", b"second"]
    assert decisions(broker)[:2] == ["Doubted", "Settled" if arrives else "Withdrawn"]


async def test_batches_of_two_owners_for_one_target_arrive_at_the_same_time(
    cluster: LocalCluster,
) -> None:
    """Queues and schedules share the way to a target; each hears of its own batch."""
    broker = cluster.nodes[1].broker
    specs = [TopicSpec("letters", assignments=[(0, [NodeId(2)])])]
    await broker.topics.create(specs)
    far, target = cluster.nodes[2].broker, TopicPartition("letters", 0)
    await cluster.until(lambda: far.replicas.find(*target) is not None)

    sending = [broker.courier.send(batch_of(value), target) for value in values(20)]
    outcomes = await asyncio.gather(*sending)

    assert set(outcomes) == {Outcome.DONE}
    assert Counter(delivered(far, "letters")) == Counter(values(20))
