"""Which products can be measured as a cluster, by the name of the product."""

from __future__ import annotations

from benchmarks.peers.cluster import ClusterPeer
from benchmarks.peers.kafka_cluster import KafkaCluster
from benchmarks.peers.waystation_cluster import WaystationCluster


def cluster_of(name: str, brokers: int = 3) -> ClusterPeer:
    """The product as a cluster of so many brokers."""
    return WaystationCluster(brokers) if name == "waystation" else KafkaCluster(brokers)
