"""Several nodes in one loop: they are one cluster, and each can be killed."""

from pathlib import Path

import pytest

from waystation.client.admin import Admin
from waystation.client.bootstrap import Address
from waystation.client.consumer import Consumer
from waystation.client.producer import Producer
from waystation.testing.cluster import LocalCluster, NotInTimeError


async def test_three_nodes_know_each_other(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 3) as cluster:
        nodes = cluster.nodes.values()
        await cluster.until(lambda: all(len(one.broker.image.brokers) == 3 for one in nodes))
        ids = {one.broker.image.cluster_id for one in nodes}

        assert len(ids) == 1
        assert len(cluster.bootstrap.split(",")) == 3


async def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 1) as cluster:
        address = cluster.bootstrap
        async with Admin(address) as admin:
            await admin.create_topic("orders", 1)
        async with Producer(address) as producer:
            sent = await producer.send("orders", "one")
            await cluster.kill(1)

            assert not cluster.nodes
            await cluster.start(1)

            assert cluster.bootstrap == address
            assert (await producer.send("orders", "two")).offset == sent.offset + 1
        async with Consumer(None, ["orders"], bootstrap=address, start="earliest") as consumer:
            assert [one.value for one in await consumer.poll()] == [b"one", b"two"]


async def test_the_dead_keep_their_lease_until_it_ends(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 2) as cluster:
        await cluster.until(lambda: len(cluster.nodes[1].broker.image.brokers) == 2)
        await cluster.kill(2)

        assert len(cluster.nodes[1].broker.image.brokers) == 2
        assert await cluster.until(lambda: len(cluster.nodes[1].broker.image.brokers) == 1) > 0.3


async def test_a_cut_is_of_one_direction_and_can_be_mended(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 2) as cluster:
        one, two = (Address(*cluster.nodes[number].address) for number in (1, 2))
        before = await cluster.nodes[1].connect(two)
        cluster.cut(1, 2)

        assert before.closed
        with pytest.raises(ConnectionRefusedError):
            await cluster.nodes[1].connect(two)
        (await cluster.nodes[2].connect(one)).close()

        cluster.mend()

        (await cluster.nodes[1].connect(two)).close()


async def test_what_does_not_come_true_in_time_is_told_with_the_state(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 1) as cluster:
        with pytest.raises(NotInTimeError, match=r"for nothing.*nodes \[1\] run"):
            await cluster.until(lambda: False, within_s=0.05, what="waiting for nothing")
