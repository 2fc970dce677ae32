"""What every coordination store must do, whatever it is made of.

A backend joins by a test class that inherits ``StoreSuite`` and has a fixture ``backend``.
The suite holds it to the promises in the docstring of ``coordination/store.py``.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from tests.support.soak import count
from waystation.coordination.store import (
    ABSENT,
    BYTES_MAX,
    OPERATIONS_MAX,
    Change,
    CoordinationStore,
    Versioned,
    Watch,
)
from waystation.model.errors import LeaseExpiredError, TransactionTooLargeError


class Backend(Protocol):
    """One store, empty at first, for one test."""

    async def open(self) -> CoordinationStore:
        """The store; after ``close`` of the former, the same store again."""
        ...

    async def pass_time(self, ms: int) -> None:
        """Let ``ms`` pass for leases, by a clock of the test's or by waiting."""
        ...


TTL_MS = 1_000
OVERDUE_MS = TTL_MS + 600


async def put(store: CoordinationStore, **values: bytes) -> int:
    """Write without comparing; underscores stand for slashes."""
    result = await store.txn({}, {key.replace("_", "/"): value for key, value in values.items()})
    assert result.succeeded
    return result.revision


async def values(store: CoordinationStore, prefix: str = "") -> dict[str, bytes]:
    return {key: item.value for key, item in (await store.get(prefix)).items.items()}


async def version(store: CoordinationStore, key: str) -> int:
    item = (await store.get(key)).items.get(key)
    return item.version if item else ABSENT


class Follower:
    """Keeps a copy by watching, and the order in which it was told."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.items: dict[str, Versioned] = {}
        self.revisions: list[int] = []

    async def upto(self, revision: int) -> dict[str, bytes]:
        """The copy once it has reached ``revision``."""
        while not self.revisions or self.revisions[-1] < revision:
            self.apply(await anext(self.watch))
        return {key: item.value for key, item in self.items.items()}

    def apply(self, change: Change) -> None:
        self.revisions.append(change.revision)
        self.items.update(change.puts)
        for key in change.deletes:
            self.items.pop(key, None)


class StoreSuite:
    """The promises, one test each."""

    @pytest.fixture
    async def store(self, backend: Backend) -> AsyncIterator[CoordinationStore]:
        store = await backend.open()
        yield store
        await store.close()

    # --- items and transactions ---

    async def test_a_new_store_is_empty(self, store: CoordinationStore) -> None:
        assert (await store.get("")).items == {}

    async def test_what_was_put_is_got(self, store: CoordinationStore) -> None:
        await put(store, topics_orders=b"3", topics_empty=b"")

        assert await values(store) == {"topics/empty": b"", "topics/orders": b"3"}

    async def test_a_snapshot_is_sorted_by_key(self, store: CoordinationStore) -> None:
        await put(store, b=b"", a_z=b"", a_b=b"", a=b"")

        assert list((await store.get("")).items) == ["a", "a/b", "a/z", "b"]

    async def test_a_prefix_with_a_slash_means_all_below_and_nothing_beside(
        self, store: CoordinationStore
    ) -> None:
        for key in ("t", "t/a", "t/a/b", "t/b", "t.x", "t-x", "t0", "tt/a", "s/z", "u"):
            await store.txn({}, {key: b""})

        assert list(await values(store, "t/")) == ["t/a", "t/a/b", "t/b"]
        assert list(await values(store, "t/a/")) == ["t/a/b"]
        assert await values(store, "nothing/") == {}

    async def test_a_prefix_without_a_slash_means_one_key(self, store: CoordinationStore) -> None:
        await put(store, brokers_1=b"a", brokers_10=b"b", brokers_1_x=b"c")

        assert await values(store, "brokers/1") == {"brokers/1": b"a"}
        assert await values(store, "brokers") == {}

    async def test_a_write_whose_compares_hold_happens_whole(
        self, store: CoordinationStore
    ) -> None:
        await put(store, a=b"1", b=b"1")
        known = {"a": await version(store, "a"), "b": await version(store, "b"), "c": ABSENT}

        result = await store.txn(known, {"a": b"2", "c": b"2"}, ["b"])

        assert result.succeeded
        assert await values(store) == {"a": b"2", "c": b"2"}
        assert result.versions == {k: await version(store, k) for k in ("a", "c")}

    @pytest.mark.parametrize("broken", ["absent but there", "there but absent", "older"])
    async def test_one_failed_compare_changes_nothing(
        self, store: CoordinationStore, broken: str
    ) -> None:
        await put(store, a=b"0", b=b"1")
        old = await version(store, "a")
        await put(store, a=b"1")
        before = await store.get("")
        compares = {
            "absent but there": {"b": await version(store, "b"), "a": ABSENT},
            "there but absent": {"b": await version(store, "b"), "c": old},
            "older": {"b": await version(store, "b"), "a": old},
        }[broken]

        result = await store.txn(compares, {"a": b"2", "d": b"2"}, ["b"])

        assert not result.succeeded
        assert result.versions == {}
        assert await store.get("") == before

    async def test_a_transaction_may_only_compare(self, store: CoordinationStore) -> None:
        revision = await put(store, a=b"1")

        assert (await store.txn({"a": await version(store, "a")}, {})).succeeded
        assert not (await store.txn({"a": ABSENT}, {})).succeeded
        assert (await store.get("")).revision == revision

    async def test_deleting_an_absent_key_is_no_change(self, store: CoordinationStore) -> None:
        revision = await put(store, a=b"1")
        result = await store.txn({}, {}, ["nothing"])

        assert result.succeeded
        assert (await store.get("")).revision == revision

    async def test_revisions_grow_with_every_change(self, store: CoordinationStore) -> None:
        revisions = [await put(store, a=b"1"), await put(store, b=b"1"), await put(store, a=b"1")]
        revisions.append((await store.txn({}, {}, ["a"])).revision)

        assert revisions == sorted(set(revisions))
        assert (await store.get("")).revision == revisions[-1]

    async def test_a_recreated_key_never_has_an_old_version(self, store: CoordinationStore) -> None:
        seen = []
        for _ in range(3):
            await put(store, a=b"1")
            seen.append(await version(store, "a"))
            await put(store, a=b"1")
            seen.append(await version(store, "a"))
            await store.txn({}, {}, ["a"])

        assert len(set(seen)) == len(seen)
        assert ABSENT not in seen

    async def test_a_large_value_is_kept_whole(self, store: CoordinationStore) -> None:
        large = random.Random(1).randbytes(BYTES_MAX - 100)
        await store.txn({}, {"large": large})

        assert await values(store) == {"large": large}

    async def test_a_transaction_may_have_as_many_operations_as_promised(
        self, store: CoordinationStore
    ) -> None:
        keys = [f"k/{n}" for n in range(OPERATIONS_MAX)]

        assert (await store.txn(dict.fromkeys(keys, ABSENT), dict.fromkeys(keys, b"v"))).succeeded
        assert len(await values(store, "k/")) == OPERATIONS_MAX

    async def test_more_than_every_backend_takes_is_refused_everywhere(
        self, store: CoordinationStore
    ) -> None:
        with pytest.raises(TransactionTooLargeError, match="operations"):
            await store.txn({}, {f"k/{n}": b"" for n in range(OPERATIONS_MAX + 1)})
        with pytest.raises(TransactionTooLargeError, match="bytes"):
            await store.txn({}, {"k": bytes(BYTES_MAX)})
        assert await values(store) == {}

    @pytest.mark.parametrize("key", ["", "/", "a//b", "/a", "a/", "a/../b", ".", "a b", "ä", "a\n"])
    async def test_a_key_that_some_backend_cannot_hold_is_our_bug(
        self, store: CoordinationStore, key: str
    ) -> None:
        with pytest.raises(AssertionError, match="not a key"):
            await store.txn({}, {key: b""})

    async def test_ten_thousand_keys_are_listed_at_once(self, store: CoordinationStore) -> None:
        keys = [f"many/{n:05}" for n in range(10_000)]
        for start in range(0, len(keys), OPERATIONS_MAX):
            await store.txn({}, dict.fromkeys(keys[start : start + OPERATIONS_MAX], b"x" * 100))

        assert list(await values(store, "many/")) == keys

    async def test_concurrent_increments_lose_nothing(self, store: CoordinationStore) -> None:
        """Many tasks read, add one and compare: as many wins as the counter says."""
        tasks, each = 8, count(10, 200)

        async def increment() -> None:
            done = 0
            while done < each:
                found = (await store.get("counter")).items.get("counter", Versioned(b"0", ABSENT))
                new = str(int(found.value) + 1).encode()
                done += (await store.txn({"counter": found.version}, {"counter": new})).succeeded

        await asyncio.gather(*(increment() for _ in range(tasks)))

        assert await values(store) == {"counter": str(tasks * each).encode()}

    async def test_a_transfer_is_never_seen_half_done(self, store: CoordinationStore) -> None:
        """Money moves between two keys while others look: the sum never changes."""
        await put(store, acc_a=b"100", acc_b=b"0")

        async def look() -> set[int]:
            seen = [await values(store, "acc/") for _ in range(30)]
            return {sum(map(int, accounts.values())) for accounts in seen}

        async def move() -> None:
            for amount in range(1, 31):
                await store.txn({}, {"acc/a": b"%d" % (100 - amount), "acc/b": b"%d" % amount})

        seen = await asyncio.gather(look(), look(), move())

        assert seen[:2] == [{100}, {100}]

    # --- watches ---

    async def test_a_watch_sees_what_comes_after_its_revision(
        self, store: CoordinationStore
    ) -> None:
        before = await put(store, a=b"old")
        follower = Follower(store.watch("", before))
        await put(store, b=b"1")
        last = (await store.txn({}, {"c": b"2"}, ["a"])).revision

        assert await follower.upto(last) == {"b": b"1", "c": b"2"}

    async def test_a_watch_opened_late_sees_what_it_missed(self, store: CoordinationStore) -> None:
        snapshot = await store.get("")
        await put(store, a=b"1")
        last = await put(store, b=b"2")

        follower = Follower(store.watch("", snapshot.revision))

        assert await follower.upto(last) == {"a": b"1", "b": b"2"}

    async def test_a_watch_sees_deletions(self, store: CoordinationStore) -> None:
        revision = await put(store, a=b"1", b=b"1")
        watch = store.watch("", revision)
        await store.txn({}, {}, ["a"])

        change = await anext(watch)

        assert change.deletes == ("a",)
        assert change.puts == {}

    async def test_a_watch_keeps_to_its_prefix(self, store: CoordinationStore) -> None:
        revision = await put(store, start=b"")
        under = Follower(store.watch("t/", revision))
        alone = Follower(store.watch("t/a", revision))
        await put(store, tt_a=b"no", t=b"no")
        last = await put(store, t_a=b"yes", t_a_b=b"below")

        assert await under.upto(last) == {"t/a": b"yes", "t/a/b": b"below"}
        assert await alone.upto(last) == {"t/a": b"yes"}

    async def test_a_watched_put_carries_the_version_to_compare_with(
        self, store: CoordinationStore
    ) -> None:
        follower = Follower(store.watch("", (await store.get("")).revision))
        await follower.upto(await put(store, a=b"1"))

        result = await store.txn({"a": follower.items["a"].version}, {"a": b"2"})

        assert result.succeeded

    async def test_watchers_end_where_the_store_is(self, store: CoordinationStore) -> None:
        """Random writes under several watchers: each sees revisions rise and the last state."""
        chance = random.Random(7)
        start = (await store.get("")).revision
        early = Follower(store.watch("", start))
        keys = [f"k/{n}" for n in range(5)]
        last = start
        for step in range(count(100, 900)):
            if chance.random() < 0.3:
                result = await store.txn({}, {}, [chance.choice(keys)])
            else:
                result = await store.txn({}, {chance.choice(keys): str(step).encode()})
            last = max(last, result.revision)
            if chance.random() < 0.2:
                await early.upto(last)
        late = Follower(store.watch("", start))

        assert await early.upto(last) == await values(store)
        assert await late.upto(last) == await values(store)
        assert early.items == (await store.get("")).items
        for follower in (early, late):
            assert follower.revisions == sorted(set(follower.revisions))

    async def test_a_watch_of_everything_reaches_every_revision_told_of(
        self, store: CoordinationStore
    ) -> None:
        """Whoever is refused or reads waits until its own view has come as far."""
        follower = Follower(store.watch("", (await store.get("")).revision))
        await put(store, a=b"1")
        lease = await store.lease(TTL_MS)
        bound = await store.txn({}, {"leased": b""}, leases={"leased": lease.id})
        told = [bound.revision, (await store.txn({"a": ABSENT}, {"a": b"2"})).revision]
        told.append((await store.txn({}, {}, ["nothing"])).revision)
        await lease.revoke()
        told.append((await store.get("a")).revision)
        told.append((await store.txn({"a": ABSENT}, {})).revision)

        for revision in told:
            await asyncio.wait_for(follower.upto(revision), 5)
        assert await follower.upto(told[-1]) == await values(store) == {"a": b"1"}

    async def test_a_closed_watch_ends(self, store: CoordinationStore) -> None:
        watch = store.watch("", (await store.get("")).revision)
        waiting = asyncio.ensure_future(anext(watch, None))
        await asyncio.sleep(0)
        watch.close()

        assert await waiting is None

    # --- leases ---

    async def test_keys_of_a_lease_go_when_it_expires(
        self, store: CoordinationStore, backend: Backend
    ) -> None:
        lease = await store.lease(TTL_MS)
        result = await store.txn(
            {}, {"brokers/1": b"alive", "kept": b""}, leases={"brokers/1": lease.id}
        )
        watch = store.watch("brokers/", result.revision)
        await backend.pass_time(OVERDUE_MS)

        change = await anext(watch)

        assert change.deletes == ("brokers/1",)
        assert change.revision > result.revision
        assert list(await values(store)) == ["kept"]

    async def test_a_lease_that_is_kept_alive_does_not_expire(
        self, store: CoordinationStore, backend: Backend
    ) -> None:
        lease = await store.lease(TTL_MS)
        await store.txn({}, {"a": b"1"}, leases={"a": lease.id})
        for _ in range(3):
            await backend.pass_time(TTL_MS // 2)
            await lease.keep_alive()

        assert await values(store) == {"a": b"1"}

    async def test_an_expired_lease_cannot_be_kept_alive_or_used(
        self, store: CoordinationStore, backend: Backend
    ) -> None:
        lease = await store.lease(TTL_MS)
        await backend.pass_time(OVERDUE_MS)

        with pytest.raises(LeaseExpiredError):
            await lease.keep_alive()
        with pytest.raises(LeaseExpiredError):
            await store.txn({}, {"a": b"1", "b": b"1"}, leases={"a": lease.id})
        assert await values(store) == {}

    async def test_revoking_deletes_at_once(self, store: CoordinationStore) -> None:
        lease, other = await store.lease(TTL_MS), await store.lease(TTL_MS)
        await store.txn({}, {"a": b"", "b": b""}, leases={"a": lease.id, "b": other.id})
        await lease.revoke()
        await lease.revoke()

        assert list(await values(store)) == ["b"]
        with pytest.raises(LeaseExpiredError):
            await lease.keep_alive()

    async def test_a_put_without_a_lease_makes_the_key_permanent(
        self, store: CoordinationStore
    ) -> None:
        lease = await store.lease(TTL_MS)
        await store.txn({}, {"a": b"1", "b": b"1"}, leases={"a": lease.id, "b": lease.id})
        await put(store, a=b"2")
        await lease.revoke()

        assert await values(store) == {"a": b"2"}

    # --- persistence ---

    async def test_what_was_put_is_there_after_reopening(self, backend: Backend) -> None:
        store = await backend.open()
        revision = await put(store, a=b"1", b=b"2")
        before = await store.get("")
        await store.close()

        store = await backend.open()

        assert await store.get("") == before
        assert await put(store, a=b"2") > revision
        await store.close()

    async def test_closing_ends_watches(self, backend: Backend) -> None:
        store = await backend.open()
        watch = store.watch("", (await store.get("")).revision)
        await store.close()

        assert await anext(watch, None) is None
