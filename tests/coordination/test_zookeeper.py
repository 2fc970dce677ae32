"""The ZooKeeper store: the port's promises on a real server, and those of its own."""

import asyncio
from itertools import count as counting

import pytest
from tests.conformance.shared_store_suite import SharedStoreSuite
from tests.support.zookeeper import ZookeeperEnsemble

from waystation.coordination.zookeeper import ZookeeperStore
from waystation.coordination.zookeeper_session import Access

_folders = counting()


class ZookeeperBackend:
    """A folder of the test's own in a server that the module's tests share."""

    def __init__(self, zookeeper: ZookeeperEnsemble) -> None:
        self._folder = f"test-{next(_folders)}"
        (self.endpoint,) = zookeeper.endpoints

    async def open(self, endpoint: str | None = None) -> ZookeeperStore:
        store = ZookeeperStore(Access((endpoint or self.endpoint,)), self._folder)
        await store.open()
        return store

    async def pass_time(self, ms: int) -> None:
        await asyncio.sleep(ms / 1_000)

    def address(self) -> str:
        return f"zookeeper://{self.endpoint}/{self._folder}"


class TestZookeeperStore(SharedStoreSuite):
    """The conformance suite on ZooKeeper."""

    @pytest.fixture
    def backend(self, zookeeper: ZookeeperEnsemble) -> ZookeeperBackend:
        return ZookeeperBackend(zookeeper)
