"""The etcd store: the port's promises on a real server, and those of its own."""

import asyncio
from collections.abc import Iterator
from itertools import count as counting

import pytest
from tests.conformance.shared_store_suite import SharedStoreSuite
from tests.support.etcd import EtcdCluster

from waystation.coordination.etcd import EtcdStore
from waystation.model.errors import LeaseExpiredError
from waystation.runtime.loops import run

_folders = counting()


class EtcdBackend:
    """A folder of the test's own in a server that the module's tests share."""

    def __init__(self, etcd: EtcdCluster) -> None:
        self._etcd = etcd
        self._folder = f"test-{next(_folders)}"
        (self.endpoint,) = etcd.endpoints

    async def open(self, endpoint: str | None = None) -> EtcdStore:
        store = EtcdStore((endpoint or self.endpoint,), self._folder)
        await store.open()
        return store

    async def pass_time(self, ms: int) -> None:
        await asyncio.sleep(ms / 1_000)

    def address(self) -> str:
        return f"etcd://{self.endpoint}/{self._folder}"

    def clear(self) -> None:
        """So that no lease which ends later changes the revision under another test."""
        self._etcd.delete_folder(self._folder)


class TestEtcdStore(SharedStoreSuite):
    """The conformance suite on etcd."""

    @pytest.fixture
    def backend(self, etcd: EtcdCluster) -> Iterator[EtcdBackend]:
        backend = EtcdBackend(etcd)
        yield backend
        backend.clear()


async def test_a_lease_is_renewed_by_the_loop_of_another_thread(etcd: EtcdCluster) -> None:
    async with EtcdStore(etcd.endpoints, "detached") as store:
        lease = await store.lease(2_000)

        async def renew() -> None:
            async with lease.detached() as keep_alive:
                await keep_alive()

        await asyncio.to_thread(run, renew())
        await lease.revoke()
        with pytest.raises(LeaseExpiredError):
            await asyncio.to_thread(run, renew())
