"""Servers that the tests of this folder share; each test has a folder of its own in them."""

from collections.abc import Iterator

import pytest
from tests.support.etcd import EtcdCluster
from tests.support.zookeeper import ZookeeperEnsemble


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """One etcd server."""
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperEnsemble]:
    """One ZooKeeper server."""
    with ZookeeperEnsemble(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble
