"""A real etcd or ZooKeeper for tests of commands that take ``--store``, by the store's name."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.cluster import STORES, Store
from tests.support.etcd import EtcdCluster
from tests.support.soak import SOAKING
from tests.support.zookeeper import ZookeeperEnsemble

# What is costly is tried on one of them every day, on all when soaking.
STORES_OF_TODAY: tuple[Store, ...] = STORES if SOAKING else ("etcd",)


@contextmanager
def service(kind: Store, folder: Path) -> Iterator[str]:
    """One server; what ``--store`` says of it, without a folder: add ``/name``."""
    with (EtcdCluster if kind == "etcd" else ZookeeperEnsemble)(folder) as servers:
        yield f"{kind}://{servers.endpoints[0]}"


__all__ = ["STORES", "STORES_OF_TODAY", "service"]
