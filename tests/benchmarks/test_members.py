"""Processes under test: started, waited for, killed, stopped, and summed up."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from benchmarks.peers.broker import RunningBroker, free_ports, life
from benchmarks.peers.cluster import copies, running_cluster
from benchmarks.peers.handshake import NotReadyError
from benchmarks.peers.kafka import write_properties
from benchmarks.peers.kafka_cluster import KafkaCluster
from benchmarks.peers.member import Alive, Member
from benchmarks.peers.waystation_cluster import WaystationCluster

SLEEPER = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"]


def at_once(alive: Alive) -> None:
    assert alive()


def never(alive: Alive) -> None:
    while alive():
        time.sleep(0.01)
    raise NotReadyError("it ended")


def member(
    folder: Path,
    name: str,
    wait: Callable[[Alive], None] = at_once,
    command: Sequence[str] = SLEEPER,
) -> Member:
    return Member(name, list(command), folder / f"{name}.log", wait)


class Pair:
    """A product whose brokers do nothing, for ever."""

    name = "sleepers"
    brokers = 2
    started: Sequence[Sequence[Member]] = ()

    def install(self) -> None: ...

    def facts(self) -> dict[str, object]:
        return {}

    def members(
        self, directory: Path, ports: Sequence[int], durability: str
    ) -> list[Sequence[Member]]:
        store = member(directory, "store")

        def with_store(alive: Alive) -> None:
            assert store.alive(), "brokers begin when what they rest on serves"

        brokers = [member(directory, f"broker-{port}", with_store) for port in ports]
        self.started = [[store], brokers]
        return [[store], brokers]


def test_a_cluster_is_one_broker_of_many_processes(tmp_path: Path) -> None:
    peer = Pair()
    with running_cluster(peer, tmp_path / "data", "memory") as cluster:
        assert cluster.alive()
        assert len(cluster.bootstrap.split(",")) == 2
        assert len(cluster.members) == 3
        assert cluster.rss_mb() > 3  # three interpreters
        assert cluster.ready_ms > 0

        cluster.brokers[2].kill()

        assert not cluster.alive()
        assert cluster.brokers[1].alive()

        cluster.brokers[2].start()

        assert cluster.alive()

    assert not any(one.alive() for wave in peer.started for one in wave)
    assert not (tmp_path / "data").exists()


def test_a_process_that_ends_while_starting_says_its_last_words(tmp_path: Path) -> None:
    doomed = member(tmp_path, "doomed", never, [sys.executable, "-c", "print('no such option')"])
    broker = RunningBroker("doomed", (1,), (doomed,))

    with pytest.raises(NotReadyError, match="no such option"), life(broker, [[doomed]]):
        pytest.fail("it never was ready")


def test_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20


@pytest.mark.parametrize(
    ("brokers", "factor", "least"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_a_cluster_keeps_as_many_copies_as_it_can_up_to_three(
    brokers: int, factor: str, least: str
) -> None:
    assert list(copies(brokers).values()) == [factor, least]


def test_kafka_differs_from_what_it_ships_only_where_a_cluster_must(tmp_path: Path) -> None:
    write_properties(tmp_path, 1, 2, {"node.id": "7", "min.insync.replicas": "2"})

    lines = (tmp_path / "server.properties").read_text().splitlines()
    assert "node.id=7" in lines
    assert "node.id=1" not in lines
    assert "num.io.threads=8" in lines
    assert KafkaCluster(3).facts()["offsets.topic.replication.factor"] == "3"


def test_brokers_of_ours_share_a_store_and_nothing_else() -> None:
    command = str(WaystationCluster(3, {"segment.bytes": "1048576"}).facts()["command"])

    assert "--store etcd://HOST:PORT" in command
    assert "min.insync.replicas=2" in command
    assert "segment.bytes=1048576" in command
