"""The ZooKeeper store on three servers that die, hang and return."""

from collections.abc import Iterator
from itertools import count as counting

import pytest
from tests.conformance.ensemble_suite import EnsembleSuite
from tests.support.zookeeper import ZookeeperEnsemble

from waystation.coordination.zookeeper import ZookeeperStore
from waystation.coordination.zookeeper_session import Access

_folders = counting()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperEnsemble]:
    with ZookeeperEnsemble(tmp_path_factory.mktemp("zookeeper"), 3) as ensemble:
        yield ensemble


class ZookeeperEnsembleBackend:
    """A folder of the test's own."""

    def __init__(self, endpoints: tuple[str, ...]) -> None:
        self._endpoints = endpoints
        self._folder = f"test-{next(_folders)}"

    async def open(self, first: int = 0) -> ZookeeperStore:
        """kazoo chooses a server by chance."""
        store = ZookeeperStore(Access(self._endpoints), self._folder, timeout_s=2.0)
        await store.open()
        return store


class TestZookeeperEnsemble(EnsembleSuite):
    """The ensemble suite on ZooKeeper."""

    @pytest.fixture
    def backend(self, servers: ZookeeperEnsemble) -> ZookeeperEnsembleBackend:
        return ZookeeperEnsembleBackend(servers.endpoints)
