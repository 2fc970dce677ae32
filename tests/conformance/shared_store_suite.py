"""What a store that several processes share must do besides, also over a bad network.

A backend joins by a test class that inherits ``SharedStoreSuite`` and has a fixture ``backend``.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from tests.conformance.store_suite import TTL_MS, Follower, StoreSuite, put, values, version
from tests.support.cutting_proxy import CuttingProxy
from tests.support.soak import count
from waystation.coordination.store import ABSENT, CoordinationStore, Snapshot, Versioned
from waystation.model.errors import StoreUnavailableError

LARGE = 5_000


class SharedBackend(Protocol):
    """One store on one server, which may be opened several times at once."""

    endpoint: str

    async def open(self, endpoint: str | None = None) -> CoordinationStore:
        """The store, at its own endpoint or through a proxy's."""
        ...

    async def pass_time(self, ms: int) -> None: ...

    def address(self) -> str:
        """For another process."""
        ...


async def insist(store: CoordinationStore, prefix: str) -> Snapshot:
    """Read, however often the network fails."""
    while True:
        try:
            return await store.get(prefix)
        except StoreUnavailableError:
            await asyncio.sleep(0.01)


class SharedStoreSuite(StoreSuite):
    """The promises to several processes, one test each."""

    @pytest.fixture
    async def other(self, backend: SharedBackend) -> AsyncIterator[CoordinationStore]:
        other = await backend.open()
        yield other
        await other.close()

    @pytest.fixture
    async def proxy(self, backend: SharedBackend) -> AsyncIterator[CuttingProxy]:
        async with CuttingProxy(backend.endpoint) as proxy:
            yield proxy

    @pytest.fixture
    async def distant(
        self, backend: SharedBackend, proxy: CuttingProxy
    ) -> AsyncIterator[CoordinationStore]:
        """The same store, over a network that fails when told to."""
        distant = await backend.open(proxy.endpoint)
        yield distant
        await distant.close()

    # --- several at once ---

    async def test_what_one_wrote_the_other_reads_at_once(
        self, store: CoordinationStore, other: CoordinationStore
    ) -> None:
        for n in range(20):
            result = await store.txn({}, {"a": b"%d" % n}, ["b"] if n % 2 else [])
            read = await other.get("")
            assert read.items["a"] == Versioned(b"%d" % n, result.versions["a"])
            assert read.revision == result.revision
            await other.txn({}, {"b": b""})

    async def test_one_compares_with_what_the_other_wrote(
        self, store: CoordinationStore, other: CoordinationStore
    ) -> None:
        first = await store.txn({"a": ABSENT}, {"a": b"1"})

        assert not (await other.txn({"a": ABSENT}, {"a": b"2"})).succeeded
        second = await other.txn(first.versions, {"a": b"2"})
        assert second.succeeded
        assert not (await store.txn(first.versions, {"a": b"3"})).succeeded
        assert (await store.txn(second.versions, {}, ["a"])).succeeded
        assert await values(other) == {}

    async def test_both_see_all_changes_in_the_same_order(
        self, store: CoordinationStore, other: CoordinationStore
    ) -> None:
        start = (await store.get("")).revision
        followers = [Follower(store.watch("", start)), Follower(other.watch("", start))]
        chance = random.Random(3)
        last = start
        for n in range(count(60, 600)):
            writer = chance.choice((store, other))
            key = f"k/{chance.randrange(4)}"
            if chance.random() < 0.3:
                result = await writer.txn({}, {"sure": b"%d" % n}, [key])
            else:
                result = await writer.txn({}, {key: b"%d" % n})
            last = result.revision

        for follower in followers:
            assert await follower.upto(last) == await values(other)
            assert follower.revisions == sorted(set(follower.revisions))
            assert follower.items == (await store.get("")).items

    async def test_a_lock_has_one_holder_though_it_is_made_anew_all_the_time(
        self, store: CoordinationStore, other: CoordinationStore
    ) -> None:
        """Every incarnation of the key looks like the last one, but for its version."""
        holders = 0
        old: set[int] = set()

        async def take_turns(mine: CoordinationStore, turns: int) -> None:
            nonlocal holders
            while turns:
                taken = await mine.txn({"lock": ABSENT}, {"lock": b"me"})
                if not taken.succeeded:
                    await asyncio.sleep(0.001)
                    continue
                holders += 1
                assert holders == 1
                turns -= 1
                holders -= 1
                old.add(taken.versions["lock"])
                assert (await mine.txn(taken.versions, {}, ["lock"])).succeeded

        async def break_in() -> None:
            """With versions of which each was valid a moment ago."""
            while True:
                for stale in sorted(old)[-3:]:
                    held = (await version(other, "lock")) == stale
                    done = await other.txn({"lock": stale}, {"broken": b"%d" % stale})
                    assert not done.succeeded or held
                await asyncio.sleep(0)

        thief = asyncio.ensure_future(break_in())
        turns = count(15, 300)
        await asyncio.gather(*(take_turns(mine, turns) for mine in (store, other) * 2))
        thief.cancel()
        await asyncio.wait([thief])

        assert thief.cancelled(), thief.exception()

    async def test_no_two_writers_pass_the_same_compare(
        self, store: CoordinationStore, other: CoordinationStore
    ) -> None:
        """Two keys must never both be taken: each writer sees the other's absent first."""
        for _ in range(count(15, 200)):
            await asyncio.gather(
                store.txn({"right": ABSENT}, {"left": b""}),
                other.txn({"left": ABSENT}, {"right": b""}),
            )
            assert len(await values(store)) == 1
            await store.txn({}, {}, ["left", "right"])

    # --- over a bad network ---

    @pytest.mark.parametrize("lost", ["request", "answer"])
    async def test_a_write_whose_answer_is_lost_is_never_repeated_nor_believed(
        self, store: CoordinationStore, distant: CoordinationStore, proxy: CuttingProxy, lost: str
    ) -> None:
        await put(distant, a=b"0")
        proxy.lose(lost, LARGE)

        with pytest.raises(StoreUnavailableError, match="may have happened"):
            await distant.txn({}, {"a": bytes(LARGE)})
        written = {"a": bytes(LARGE)} if lost == "answer" else {"a": b"0"}
        assert await values(store) == written
        assert await values(distant) == written

    async def test_whoever_reads_again_before_repeating_writes_once(
        self, distant: CoordinationStore, proxy: CuttingProxy
    ) -> None:
        """A list that every entry must join exactly once, while requests and answers get lost."""
        chance = random.Random(11)
        unsure = 0
        entries = count(25, 400)
        for n in range(entries):
            fate = chance.choice(("", "", "request", "answer"))
            while True:
                found = (await insist(distant, "list")).items.get("list", Versioned(b"", ABSENT))
                if b"%d" % n in found.value.split():
                    break
                if fate:
                    proxy.lose(fate, 200)
                    fate = ""
                try:
                    longer = found.value + b" %d" % n + b" " * 300
                    await distant.txn({"list": found.version}, {"list": longer})
                except StoreUnavailableError:
                    unsure += 1

        assert [int(n) for n in (await values(distant))["list"].split()] == list(range(entries))
        assert unsure > 3

    async def test_a_watch_goes_on_where_its_connection_was_cut(
        self, store: CoordinationStore, distant: CoordinationStore, proxy: CuttingProxy
    ) -> None:
        follower = Follower(distant.watch("", (await store.get("")).revision))
        last = 0
        for n in range(count(30, 300)):
            last = await put(store, **{f"k_{n % 5}": b"%d" % n})
            if n % 10 == 5:
                proxy.cut()
                last = (await store.txn({}, {"during": b"%d" % n}, ["k/1"])).revision
            if n % 7 == 0:
                await follower.upto(last)

        assert await follower.upto(last) == await values(store)
        assert follower.revisions == sorted(set(follower.revisions))

    async def test_a_lease_outlives_a_connection(
        self,
        store: CoordinationStore,
        distant: CoordinationStore,
        proxy: CuttingProxy,
        backend: SharedBackend,
    ) -> None:
        lease = await distant.lease(2 * TTL_MS)
        await distant.txn({}, {"a": b"1"}, leases={"a": lease.id})
        for _ in range(3):
            proxy.cut()
            await backend.pass_time(TTL_MS // 4)
            await lease.keep_alive()

        assert await values(store) == {"a": b"1"}

    # --- processes that die or stand still ---

    async def test_a_paused_process_loses_its_lease_and_learns_of_it(
        self, store: CoordinationStore, backend: SharedBackend
    ) -> None:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.lease_holder"),
            *(backend.address(), "brokers/1", str(TTL_MS)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert child.stdout
        try:
            assert await child.stdout.readline() == b"held\n"
            held = await store.get("brokers/")
            assert list(held.items) == ["brokers/1"]
            watch = store.watch("brokers/", held.revision)
            os.kill(child.pid, signal.SIGSTOP)

            assert (await anext(watch)).deletes == ("brokers/1",)

            os.kill(child.pid, signal.SIGCONT)
            assert await child.stdout.readline() == b"ended\n"
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()
