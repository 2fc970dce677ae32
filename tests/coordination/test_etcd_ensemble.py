"""The etcd store on three servers that die, hang and return."""

from collections.abc import Iterator
from itertools import count as counting

import pytest
from tests.conformance.ensemble_suite import EnsembleSuite
from tests.support.etcd import EtcdCluster

from waystation.coordination.etcd import EtcdStore

_folders = counting()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("etcd"), 3) as cluster:
        yield cluster


class EtcdEnsembleBackend:
    """A folder of the test's own."""

    def __init__(self, endpoints: tuple[str, ...]) -> None:
        self._endpoints = endpoints
        self._folder = f"test-{next(_folders)}"

    async def open(self, first: int = 0) -> EtcdStore:
        endpoints = self._endpoints[first:] + self._endpoints[:first]
        store = EtcdStore(endpoints, self._folder, timeout_s=2.0)
        await store.open()
        return store


class TestEtcdEnsemble(EnsembleSuite):
    """The ensemble suite on etcd."""

    @pytest.fixture
    def backend(self, servers: EtcdCluster) -> EtcdEnsembleBackend:
        return EtcdEnsembleBackend(servers.endpoints)
