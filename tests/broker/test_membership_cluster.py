"""Membership in a cluster: who may join, who is taken for dead, who comes back as whom."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.support.etcd import EtcdCluster
from waystation.client.admin import Admin
from waystation.cluster import keys
from waystation.cluster.image import ClusterImage
from waystation.coordination.etcd import EtcdStore
from waystation.coordination.sqlite import SqliteStore
from waystation.coordination.store import Lease
from waystation.model.errors import (
    DuplicateBrokerError,
    StoreUnavailableError,
    WrongClusterError,
)
from waystation.model.ids import NodeId
from waystation.node.node import Node
from waystation.node.settings import NodeSettings, load
from waystation.testing.cluster import LocalCluster

TOPIC = "orders"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


def settings(folder: Path, **options: str) -> NodeSettings:
    given = {
        "listen": "127.0.0.1:0",
        "http": "none",
        "log.dirs": str(folder),
        "broker.session.timeout.ms": "1000",
    }
    return load(
        [("test", given | {name.replace("_", "."): text for name, text in options.items()})]
    )


async def known(cluster: LocalCluster) -> None:
    nodes = cluster.nodes.values()
    await cluster.until(lambda: all(TOPIC in one.broker.image.topics for one in nodes))


async def refused(node: Node, error: type[Exception]) -> str:
    with pytest.raises(error) as caught:
        await node.start()
    await node.stop()
    return str(caught.value)


async def test_a_directory_of_another_cluster_is_refused_and_kept(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path / "a", 1) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC)
        await cluster.stop(1)
    log = tmp_path / "a" / "node-1" / f"{TOPIC}-0"
    assert log.is_dir()

    async with SqliteStore(tmp_path / "empty.sqlite") as store:
        node = Node(settings(tmp_path / "a" / "node-1"), store=store)
        assert "cluster recover" in await refused(node, WrongClusterError)
        async with LocalCluster(tmp_path / "b", 1, store=store):
            node = Node(settings(tmp_path / "a" / "node-1"), store=store)
            assert "belongs to cluster" in await refused(node, WrongClusterError)
    assert log.is_dir()
    async with LocalCluster(tmp_path / "a", 1) as cluster:
        assert cluster.leader(TOPIC) == 1


async def test_a_second_broker_of_the_same_id_gives_up(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 2) as cluster:
        epochs = {number: one.broker.broker_epoch for number, one in cluster.nodes.items()}
        node = Node(settings(tmp_path / "twin", node_id="2"), store=cluster.store)
        assert "broker 2 runs already" in await refused(node, DuplicateBrokerError)

        registered = cluster.image.brokers
        assert {number: one.epoch for number, one in registered.items()} == epochs


async def test_a_broker_that_was_killed_knows_its_own_last_life(tmp_path: Path) -> None:
    slow = {"broker.session.timeout.ms": "30000"}
    async with LocalCluster(tmp_path, 2, options=slow) as cluster:
        first = cluster.image.brokers[NodeId(2)]
        await cluster.kill(2)
        began = monotonic()
        node = Node(
            settings(tmp_path / "node-2", node_id="2", broker_machine="machine-2"),
            store=cluster.store,
        )
        await node.start()

        assert monotonic() - began < 5
        assert node.broker.broker_epoch > first.epoch
        await node.stop()


async def test_a_lease_that_ends_while_a_broker_joins_costs_another_try(tmp_path: Path) -> None:
    class ShortOfBreath(SqliteStore):
        """Lets the first lease end as soon as something hangs on it."""

        ended = False

        async def txn(self, compares: Any, puts: Any, *more: Any, **leases: Any) -> Any:
            done = await super().txn(compares, puts, *more, **leases)
            if not self.ended and keys.broker(NodeId(1)) in puts:
                self.ended = True
                await self._lease.revoke()
            return done

        async def lease(self, ttl_ms: int) -> Lease:
            self._lease = await super().lease(ttl_ms)
            return self._lease

    async with ShortOfBreath(tmp_path / "store.sqlite") as store:
        node = Node(settings(tmp_path / "data"), store=store)
        await node.start()

        assert store.ended
        assert (await store.get(keys.broker(NodeId(1)))).items
        assert node.broker.image.controller is not None
        await node.stop()


async def test_who_slept_past_its_lease_while_it_started_is_registered_when_ready(
    tmp_path: Path,
) -> None:
    class Sleepy(Node):
        """Is paused, as by the system, when it has just registered."""

        slept = False

        def _reconfigured(self, image: ClusterImage) -> None:
            super()._reconfigured(image)
            if image.brokers and not self.slept:
                self.slept = True
                sleep(1.2)

    node = Sleepy(settings(tmp_path))
    await node.start()

    assert node.slept
    assert node.broker.registered
    async with Admin(node.bootstrap) as admin:
        await admin.create_topic(TOPIC)
    await node.stop()


async def test_who_was_cut_off_comes_back_as_another_incarnation(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 3) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, 3, replication_factor=3)
        await known(cluster)
        broker = cluster.nodes[2].broker
        epoch = broker.broker_epoch
        cluster.cut_off_from_store(2)
        others = [cluster.nodes[1].broker, cluster.nodes[3].broker]
        await cluster.until(lambda: all(2 not in one.image.brokers for one in others))
        cluster.reconnect_to_store(2)

        await cluster.until(lambda: all(2 in one.image.brokers for one in others))
        await cluster.until(lambda: broker.broker_epoch > epoch)
        await cluster.until(
            lambda: all(
                state.leader is not None and len(state.in_sync) == 3
                for state in cluster.image.topic(TOPIC).partitions
            )
        )


async def test_a_registration_that_was_deleted_is_made_anew(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 2) as cluster:
        broker = cluster.nodes[1].broker
        epoch = broker.broker_epoch
        await cluster.store.txn({}, {}, ["brokers/1", "controller"])

        await cluster.until(lambda: broker.broker_epoch > epoch)
        await cluster.until(lambda: cluster.image.controller and 1 in cluster.image.brokers)


async def test_who_hears_nothing_any_more_is_not_counted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with LocalCluster(tmp_path, 2) as cluster:

        async def break_down(*_: object) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(cluster.nodes[1].broker._view, "_act", break_down)
        await cluster.store.txn({}, {"drains/9": b'{"v":1}'})

        other = cluster.nodes[2].broker
        await cluster.until(lambda: {*other.image.brokers} == {2})
        await cluster.until(lambda: other.controlling.active)


async def test_brokers_go_on_without_the_store_and_nobody_is_taken_for_dead(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 3) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, 3, replication_factor=3)
        await known(cluster)
        for number in cluster.ids:
            cluster.cut_off_from_store(number)
        await asyncio.sleep(1.5)
        for node in cluster.nodes.values():
            assert any(one.leading for one in node.broker.replicas)
        cluster.mend()

        await cluster.until(lambda: {*cluster.image.brokers} == {1, 2, 3})
        await cluster.until(
            lambda: all(
                state.leader is not None and len(state.in_sync) == 3
                for state in cluster.image.topic(TOPIC).partitions
            )
        )


async def test_a_store_that_does_not_answer_is_named_after_a_while(tmp_path: Path) -> None:
    options = {"store": "etcd://127.0.0.1:1", "store_connect_timeout_ms": "700"}
    began = monotonic()

    told = await refused(Node(settings(tmp_path, **options)), StoreUnavailableError)
    assert "127.0.0.1:1" in told
    assert monotonic() - began < 10


async def test_a_cluster_on_etcd_fails_over_and_takes_its_broker_back(
    tmp_path: Path, etcd: EtcdCluster
) -> None:
    async with (
        EtcdStore(etcd.endpoints, "failing-over") as store,
        LocalCluster(tmp_path, 3, store=store) as cluster,
    ):
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, 6, replication_factor=3)
        await known(cluster)
        await cluster.kill(1)

        await cluster.until(
            lambda: all(state.leader in (2, 3) for state in cluster.image.topic(TOPIC).partitions)
        )
        await cluster.start(1)
        await cluster.stop(2)
        await cluster.until(lambda: 2 not in cluster.image.brokers, within_s=1)
        assert all(state.leader in (1, 3) for state in cluster.image.topic(TOPIC).partitions)
