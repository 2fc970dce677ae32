"""Apache Kafka as a cluster: combined KRaft nodes, each a controller and a broker.

Every node has what Kafka ships (``kafka.properties``), heap and collector included.  Changed is
only what makes three nodes a cluster that keeps three copies: ids, the controllers' addresses, and
the replication of topics, internal ones too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.peers import java, kafka
from benchmarks.peers.broker import free_ports
from benchmarks.peers.cluster import copies
from benchmarks.peers.handshake import wait_until_ready
from benchmarks.peers.member import Member

_READY_TIMEOUT_S = 120.0


class KafkaCluster:
    """Formats and starts ``brokers`` nodes of ``kafka.Kafka``."""

    name = "kafka"

    def __init__(self, brokers: int = 3) -> None:
        self.brokers = brokers

    def install(self) -> None:
        """Fetch the jars from Maven Central unless they are here."""
        java.fetch_kafka()

    def facts(self) -> dict[str, object]:
        """How many nodes, and the settings that differ from a single one's."""
        return {"nodes": f"{self.brokers}, combined", **self._replication()}

    def members(
        self, directory: Path, ports: Sequence[int], durability: str
    ) -> list[Sequence[Member]]:
        """All nodes at once: controllers find each other."""
        controllers = free_ports(self.brokers)
        identity = kafka.new_id()
        voters = ",".join(
            f"{number}@127.0.0.1:{port}:{kafka.new_id()}"
            for number, port in enumerate(controllers, start=1)
        )
        nodes: list[Member] = []
        for number, (port, controller) in enumerate(zip(ports, controllers, strict=True), start=1):
            own = directory / f"node-{number}"
            own.mkdir()
            changed = self._changed(number, controllers)
            kafka.write_properties(own, port, controller, changed)
            kafka.format_storage(own, identity, "--initial-controllers", voters)
            wait = partial(wait_until_ready, port, _READY_TIMEOUT_S, brokers=self.brokers)
            log = directory / f"node-{number}.log"
            nodes.append(Member(f"kafka {number}", kafka.start_command(own), log, wait))
        return [nodes]

    def _changed(self, number: int, controllers: Sequence[int]) -> dict[str, str]:
        servers = ",".join(f"127.0.0.1:{port}" for port in controllers)
        own = {"node.id": str(number), "controller.quorum.bootstrap.servers": servers}
        return own | self._replication()

    def _replication(self) -> dict[str, str]:
        factor, least = copies(self.brokers).values()
        return copies(self.brokers) | {
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": least,
            "share.coordinator.state.topic.replication.factor": factor,
            "share.coordinator.state.topic.min.isr": least,
        }
