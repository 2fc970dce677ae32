"""Mistakes that people make with clusters: each is named, costs nothing and disturbs nobody."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.cluster import ProcessCluster
from tests.support.etcd import EtcdCluster
from waystation.client.producer import Producer
from waystation.model.errors import ErrorCode, InvalidReplicationFactorError, WaystationError
from waystation.runtime.loops import run
from waystation.testing.process import BrokerFailedError, BrokerProcess

pytestmark = [pytest.mark.alone, pytest.mark.timeout(300)]

OPTIONS = {"broker.session.timeout.ms": "1500", "default.replication.factor": "2"}
STEADY_S = 3.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("cluster"), 2, options=OPTIONS) as running:
        running.ask(lambda admin: admin.create_topic("orders", 2))
        yield running


def another(cluster: ProcessCluster, folder: Path, number: int, store: str = "") -> BrokerProcess:
    """One more broker, with a directory of its own."""
    own = {"node.id": str(number), "store": store or cluster.store_address}
    return BrokerProcess(folder / f"another-{number}", options={**cluster.options, **own})


def said(broker: BrokerProcess) -> str:
    return broker.log_path.read_text() if broker.log_path.exists() else ""


def send(cluster: ProcessCluster, value: str) -> int:
    async def sending() -> int:
        async with Producer(cluster.bootstrap) as producer:
            return (await producer.send("orders", value, partition=0)).offset

    return run(sending())


def picture(cluster: ProcessCluster) -> object:
    """Everything that would show somebody being disturbed: epochs, leaders and sets."""
    return cluster.topic("orders").partitions


def test_a_second_broker_of_one_id_is_turned_away(cluster: ProcessCluster, tmp_path: Path) -> None:
    before = picture(cluster)
    with pytest.raises(BrokerFailedError, match=r"broker 1 runs already, at .* another --node-id"):
        another(cluster, tmp_path, 1).start()

    assert picture(cluster) == before, "whoever was there first goes on"
    assert send(cluster, "one more") >= 0


def test_a_directory_of_another_cluster_is_refused_and_left_alone(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    alone = BrokerProcess(
        tmp_path / "another-3", options={**cluster.options, "node.id": "3", "store": "sqlite"}
    )
    with alone.start():
        pass
    files = {one: one.stat().st_size for one in sorted(alone.data_dir.rglob("*.log"))}
    before = picture(cluster)

    with pytest.raises(BrokerFailedError, match=r"belongs to cluster"):
        another(cluster, tmp_path, 3).start()

    assert {one: one.stat().st_size for one in sorted(alone.data_dir.rglob("*.log"))} == files
    assert picture(cluster) == before
    with alone.start():
        assert alone.is_alive


def test_a_store_that_is_not_there_is_named_and_waited_for(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    etcd = EtcdCluster(tmp_path / "etcd")
    broker = another(cluster, tmp_path, 1, f"etcd://{etcd.endpoints[0]}/waystation")
    with ThreadPoolExecutor(1) as thread:
        started = thread.submit(broker.start)
        cluster.until(lambda: "not.reached" in said(broker))
        assert etcd.endpoints[0] in said(broker)
        assert not started.done()

        with etcd:
            started.result()
            assert broker.stop() == 0


def test_more_replicas_than_brokers_are_refused(cluster: ProcessCluster) -> None:
    with pytest.raises(InvalidReplicationFactorError, match="3"):
        cluster.ask(lambda admin: admin.create_topic("wide", 1, replication_factor=3))
    with pytest.raises(WaystationError):
        cluster.topic("wide")


def test_a_move_to_a_broker_that_nobody_knows_is_refused(cluster: ProcessCluster) -> None:
    before = picture(cluster)
    outcomes = cluster.ask(
        lambda admin: admin.alter_reassignments({("orders", 0): [1, 9], ("orders", 7): [1]})
    )

    refused = outcomes["orders", 0]
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "broker 9 is not registered; there are 1, 2" in str(refused)
    assert outcomes["orders", 7] is not None
    assert not cluster.ask(lambda admin: admin.list_reassignments())
    assert picture(cluster) == before


def test_nothing_moves_while_nothing_happens(cluster: ProcessCluster) -> None:
    """No flapping: whatever went wrong before, leaders and sets stay as they are."""
    cluster.until(lambda: all(len(one.in_sync) == 2 for one in cluster.topic("orders").partitions))
    before, sent = picture(cluster), send(cluster, "before")
    time.sleep(STEADY_S)

    assert picture(cluster) == before
    assert send(cluster, "after") == sent + 1
