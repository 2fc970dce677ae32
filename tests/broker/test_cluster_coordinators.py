"""Coordinators on several brokers: what one of them knows, the others ask."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.apis.kit import batch_of
from tests.broker.test_coordinators import values
from waystation import Admin, Consumer, Producer
from waystation.broker.coordinators import OFFSETS_TOPIC
from waystation.broker.transactions import STATE_TOPIC
from waystation.model.errors import ProducerFencedError
from waystation.model.ids import NodeId, ProducerEpoch, ProducerId, TopicPartition
from waystation.partition.partition import Partition
from waystation.testing.cluster import LocalCluster

STRANGER = ProducerId(777_777)
OPTIONS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "log.retention.check.interval.ms": "100",
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path, 3, options=OPTIONS) as running:
        nodes = list(running.nodes.values())
        await running.until(lambda: all(len(one.broker.image.brokers) == 3 for one in nodes))
        yield running


async def create(cluster: LocalCluster, *replicas: list[int], **configs: str) -> None:
    async with Admin(cluster.bootstrap) as admin:
        options = {name.replace("_", "."): value for name, value in configs.items()}
        await admin.create_topic("orders", assignments=dict(enumerate(replicas)), configs=options)
    newest = cluster.image.revision
    nodes = cluster.nodes.values()
    await cluster.until(lambda: all(one.broker.image.revision >= newest for one in nodes))


def held(cluster: LocalCluster, node: int, number: int = 0) -> Partition:
    return cluster.nodes[node].broker.replicas.get("orders", number)


def name_led_by(cluster: LocalCluster, node: int, *, group: bool = False) -> str:
    """A transactional id, or a group, that ``node`` coordinates."""
    broker = cluster.nodes[node].broker
    posts = broker.groups if group else broker.transactions
    return next(name for name in map("name-{}".format, range(100)) if posts.leader_of(name) == node)


async def coordinated(cluster: LocalCluster) -> None:
    """Let there be coordinators, on all brokers."""
    broker = cluster.nodes[1].broker
    await broker.transactions.find("any")
    await broker.groups.find("any")
    brokers = [one.broker for one in cluster.nodes.values()]
    topics = (STATE_TOPIC, OFFSETS_TOPIC)
    await cluster.until(
        lambda: (
            all(
                len(one.transactions.machines()) == len(one.groups.machines()) == 1
                for one in brokers
            )
            and all(topic in one.image.topics for topic in topics for one in brokers)
        )
    )


async def test_what_no_coordinator_of_the_cluster_knows_is_aborted(cluster: LocalCluster) -> None:
    await create(cluster, [1])
    await coordinated(cluster)
    partition = held(cluster, 1)
    batch = batch_of(b"x", producer=(STRANGER, 0, 0), transactional=True)
    partition.append(memoryview(bytearray(batch)), 1, cluster.nodes[1].broker.clock.now())
    name = name_led_by(cluster, 2)
    async with (
        Producer(cluster.bootstrap, transactional_id=name) as producer,
        producer.transaction() as known,
    ):
        await known.send("orders", b"known", partition=0)
        (stranger, known_one) = partition.open_transactions()
        hanging = cluster.nodes[1].broker.hanging
        hanging._settings = lambda: _Impatient()  # type: ignore[assignment,return-value]
        hanging.look()
        await cluster.until(lambda: len(partition.open_transactions()) == 1)

        assert stranger.producer_id == STRANGER
        assert partition.open_transactions() == [known_one]
    await cluster.until(lambda: not partition.open_transactions())


class _Impatient:
    """No transaction may be open for any time at all."""

    transaction_max_timeout_ms = -60_000


async def test_nothing_is_aborted_while_a_coordinator_does_not_answer(
    cluster: LocalCluster,
) -> None:
    await create(cluster, [1])
    await coordinated(cluster)
    partition = held(cluster, 1)
    batch = batch_of(b"x", producer=(STRANGER, 0, 0), transactional=True)
    partition.append(memoryview(bytearray(batch)), 1, cluster.nodes[1].broker.clock.now())
    cluster.cut(1, 3)
    broker = cluster.nodes[1].broker
    broker.hanging._settings = lambda: _Impatient()  # type: ignore[assignment,return-value]
    broker.hanging.look()
    await asyncio.sleep(0.3)

    assert partition.in_transaction(STRANGER, ProducerEpoch(0))


async def test_an_archive_is_asked_for_where_its_group_is(cluster: LocalCluster) -> None:
    await coordinated(cluster)
    group = name_led_by(cluster, 2, group=True)
    await create(cluster, [1], [3], retention_after_archive=group)
    async with Producer(cluster.bootstrap) as producer:
        for number in (0, 1):
            for _ in range(10):
                await producer.send("orders", b"x", partition=number)
    async with Consumer(group, bootstrap=cluster.bootstrap, auto_commit=False) as consumer:
        await consumer.assign([("orders", 0), ("orders", 1)])
        await consumer.commit({("orders", 0): 7})
    archives = cluster.nodes[1].broker._housekeeping._archives
    await archives.look()
    assert archives.kept_from(held(cluster, 1)) == 7

    # One partition has no position yet, and the other's coordinator is gone.
    other = cluster.nodes[3].broker._housekeeping._archives
    await other.look()
    assert other.kept_from(held(cluster, 3, 1)) == 0
    cluster.cut(1, 2)
    await archives.look()
    assert archives.kept_from(held(cluster, 1)) == 0


async def test_a_survey_knows_of_partitions_that_others_hold(cluster: LocalCluster) -> None:
    await coordinated(cluster)
    group = name_led_by(cluster, 2, group=True)
    await create(cluster, [1], [2])
    async with Producer(cluster.bootstrap) as producer:
        for number in (0, 1):
            for _ in range(10):
                await producer.send("orders", b"x", partition=number)
    async with Consumer(group, bootstrap=cluster.bootstrap, auto_commit=False) as consumer:
        await consumer.assign([("orders", 0), ("orders", 1)])
        await consumer.commit({("orders", 0): 7, ("orders", 1): 4})
    broker = cluster.nodes[2].broker
    for _ in range(2):
        await broker.survey.look()

    assert values(broker, "waystation_group_lag_messages") == {
        f"{group} 0 orders": 3,
        f"{group} 1 orders": 6,
    }


async def test_who_was_fenced_elsewhere_cannot_write(cluster: LocalCluster) -> None:
    """The partition's leader has heard of no newer epoch; only the coordinator has."""
    await create(cluster, [1], [3])
    await coordinated(cluster)
    name = name_led_by(cluster, 2)
    async with (
        Producer(cluster.bootstrap, transactional_id=name) as zombie,
        Producer(cluster.bootstrap, transactional_id=name) as successor,
    ):
        async with successor.transaction() as transaction:
            await transaction.send("orders", b"new", partition=1)
        with pytest.raises(ProducerFencedError):
            async with zombie.transaction() as transaction:
                await transaction.send("orders", b"old", partition=0)
    assert held(cluster, 1).log_end == 0


async def test_a_node_that_grows_into_a_cluster_shares_its_coordinators(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 1, options=OPTIONS) as cluster:
        async with Consumer("early", bootstrap=cluster.bootstrap, auto_commit=False) as consumer:
            async with Admin(cluster.bootstrap) as admin:
                await admin.create_topic("orders", 1)
            await consumer.assign([("orders", 0)])
            await consumer.commit({("orders", 0): 0})
        assert cluster.partition(OFFSETS_TOPIC).replicas == (1,)  # type: ignore[union-attr]

        for number in (2, 3):
            await cluster.start(number)

        def is_shared() -> bool:
            partitions = cluster.image.topics[OFFSETS_TOPIC].partitions
            return (
                all({*one.replicas} == {*one.in_sync} == {1, 2, 3} for one in partitions)
                and not cluster.image.reassignments
            )

        await cluster.until(is_shared)
        first = [one.replicas[0] for one in cluster.image.topics[OFFSETS_TOPIC].partitions]
        assert sorted(first) == [1, 2, 3], "preferred leaders are not spread"
        await cluster.until(
            lambda: all(
                one.settings.min_insync_replicas == 2
                for node in cluster.nodes.values()
                for one in node.broker.replicas.of_topic(OFFSETS_TOPIC)
            )
        )
        await cluster.kill(1)
        async with Consumer("early", bootstrap=cluster.bootstrap, auto_commit=False) as consumer:
            where = TopicPartition("orders", 0)
            found = await consumer.committed([where])
            assert found[where] is not None
        assert cluster.leader(OFFSETS_TOPIC) in (NodeId(2), NodeId(3))
