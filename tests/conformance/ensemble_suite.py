"""What a store on three servers must do while one of them dies, hangs or restarts.

A backend joins by a test class that inherits ``EnsembleSuite`` and has the fixtures ``servers``
and ``backend``.  Tests leave all servers running.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from tests.conformance.shared_store_suite import insist
from tests.conformance.store_suite import Follower, put, values
from tests.support.servers import Server
from tests.support.soak import SOAKING, count
from waystation.coordination.store import ABSENT, CoordinationStore, Lease, Versioned
from waystation.model.errors import CompactedError, StoreUnavailableError

LEASE_MS = 20_000


class Servers(Protocol):
    """Three servers on loopback."""

    def __getitem__(self, member: int) -> Server: ...

    def wait(self) -> None: ...

    def leader(self) -> int: ...


class EnsembleBackend(Protocol):
    """A folder of the test's own on all three."""

    async def open(self, first: int = 0) -> CoordinationStore:
        """The store; ``first`` is the server that is asked first, if that can be chosen."""
        ...


class Tally:
    """A counter in the store that one task counts up, and what it was told of that."""

    def __init__(self, store: CoordinationStore, key: str) -> None:
        self._store = store
        self._key = key
        self.acknowledged = self.unsure = 0
        self.enough = False
        self.moved = asyncio.Event()

    async def run(self) -> None:
        while not self.enough:
            read = await insist(self._store, self._key)
            found = read.items.get(self._key, Versioned(b"0", ABSENT))
            new = b"%d" % (int(found.value) + 1)
            try:
                done = await self._store.txn({self._key: found.version}, {self._key: new})
            except StoreUnavailableError:
                self.unsure += 1
                continue
            self.acknowledged += done.succeeded
            if done.succeeded:
                self.moved.set()
            await asyncio.sleep(0.002)

    async def goes_on(self) -> None:
        """Until something more is acknowledged."""
        for _ in range(2):
            self.moved.clear()
            await self.moved.wait()

    def allows(self, value: bytes) -> bool:
        return self.acknowledged <= int(value) <= self.acknowledged + self.unsure


class EnsembleSuite:
    """The promises of an ensemble, one test each."""

    @pytest.fixture
    async def stores(self, backend: EnsembleBackend) -> AsyncIterator[list[CoordinationStore]]:
        """Three, each of which asks another server first."""
        stores = [await backend.open(first) for first in range(3)]
        yield stores
        for store in stores:
            await store.close()

    @pytest.mark.parametrize("fault", ["kill", "pause"])
    async def test_nothing_is_lost_when_the_leader_dies_or_hangs(
        self, servers: Servers, stores: list[CoordinationStore], fault: str
    ) -> None:
        """Writers, watchers and a lease on three servers, through one fault or many."""
        start = (await stores[0].get("")).revision
        followers = [asyncio.ensure_future(_follow(store, start)) for store in stores]
        lease = await stores[0].lease(LEASE_MS)
        await stores[0].txn({}, {"leased": b""}, leases={"leased": lease.id})
        tallies = [Tally(store, f"tally/{n}") for n, store in enumerate(stores)]
        running = [asyncio.ensure_future(tally.run()) for tally in tallies]
        keeping = asyncio.ensure_future(_keep(lease))
        for _ in range(count(1, 10)):
            await asyncio.gather(*(tally.goes_on() for tally in tallies))
            leader = await asyncio.to_thread(servers.leader)
            getattr(servers[leader], fault)()
            await asyncio.gather(*(tally.goes_on() for tally in tallies))
            if fault == "kill":
                servers[leader].start()
            else:
                servers[leader].resume()
            await asyncio.to_thread(servers.wait)
        await asyncio.gather(*(tally.goes_on() for tally in tallies))
        for tally in tallies:
            tally.enough = True
        await asyncio.gather(*running)
        keeping.cancel()

        await _put_at_last(stores[1])
        kept = {key: item.value for key, item in (await insist(stores[2], "")).items.items()}
        assert "leased" in kept
        for n, tally in enumerate(tallies):
            assert tally.allows(kept[f"tally/{n}"]), (vars(tally), kept)
        assert await asyncio.gather(*followers) == [kept] * 3

    async def test_without_most_servers_nothing_is_promised_and_later_nothing_is_missing(
        self, servers: Servers, stores: list[CoordinationStore]
    ) -> None:
        await put(stores[0], a=b"1")
        follower = asyncio.ensure_future(_follow(stores[2], (await stores[2].get("")).revision))
        for member in (0, 1):
            servers[member].kill()

        refused = await asyncio.gather(
            stores[2].txn({}, {"b": b"1"}), stores[2].get(""), return_exceptions=True
        )
        for refusal in refused:
            assert isinstance(refusal, StoreUnavailableError), refusal
            assert "most of its servers" in str(refusal)
        if SOAKING:
            servers[2].kill()
            servers[2].start()
        for member in (0, 1):
            servers[member].start()
        await asyncio.to_thread(servers.wait)

        assert (await insist(stores[0], "a")).items["a"].value == b"1"
        await _put_at_last(stores[1])
        assert (await follower)["end"] == b""
        assert await values(stores[0]) == await values(stores[2])


async def _follow(store: CoordinationStore, start: int) -> dict[str, bytes]:
    """A copy kept by watching up to the item ``end``; lists again where it must."""
    follower = Follower(store.watch("", start))
    while "end" not in follower.items:
        try:
            follower.apply(await anext(follower.watch))
        except CompactedError:
            read = await insist(store, "")
            follower = Follower(store.watch("", read.revision))
            follower.items = dict(read.items)
    assert follower.revisions == sorted(set(follower.revisions))
    return {key: item.value for key, item in follower.items.items()}


async def _keep(lease: Lease) -> None:
    while True:
        await asyncio.sleep(LEASE_MS / 40_000)
        try:
            await lease.keep_alive()
        except StoreUnavailableError:
            continue


async def _put_at_last(store: CoordinationStore) -> int:
    while True:
        try:
            return await put(store, end=b"")
        except StoreUnavailableError:
            await asyncio.sleep(0.05)
