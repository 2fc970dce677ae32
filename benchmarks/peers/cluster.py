"""One life of a cluster on this machine: what brokers rest on, then the brokers, all of them.

``ClusterPeer`` says how a product is started as several brokers; the rest of the harness treats the
running cluster as one broker that is many processes: CPU and memory are sums over all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from benchmarks.peers.broker import RunningBroker, free_ports, fresh, life
from benchmarks.peers.member import Member


class ClusterPeer(Protocol):
    """A product as a cluster of ``brokers``."""

    name: str
    brokers: int

    def install(self) -> None:
        """Make it startable; raise ``PeerMissingError`` if that is impossible."""

    def facts(self) -> dict[str, object]:
        """What of its configuration differs from a single broker's."""

    def members(
        self, directory: Path, ports: Sequence[int], durability: str
    ) -> list[Sequence[Member]]:
        """Its processes in waves, each of which rests on the one before; brokers are the last.

        Whatever its users do once, such as formatting, is done when this returns.
        """


class RunningCluster(RunningBroker):
    """A cluster whose brokers, numbered from 1, can be killed and started again."""

    def __init__(self, name: str, ports: Sequence[int], waves: Sequence[Sequence[Member]]) -> None:
        super().__init__(name, ports, [member for wave in waves for member in wave])
        self.brokers = dict(enumerate(waves[-1], start=1))


@contextmanager
def running_cluster(
    peer: ClusterPeer, directory: Path, durability: str
) -> Iterator[RunningCluster]:
    """A fresh cluster of ``peer`` until the end of the block; its data is gone afterwards."""
    with fresh(directory):
        ports = free_ports(peer.brokers)
        waves = peer.members(directory, ports, durability)
        cluster = RunningCluster(peer.name, ports, waves)
        with life(cluster, waves):
            yield cluster


def copies(brokers: int) -> dict[str, str]:
    """Three replicas of everything, two of which must have it, or as many as brokers allow."""
    return {
        "default.replication.factor": str(min(3, brokers)),
        "min.insync.replicas": str(max(1, min(3, brokers) - 1)),
    }
