"""The SQLite store: the port's promises, and those of its own file."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.store_suite import Follower, StoreSuite, put, values
from tests.support.soak import count

from waystation.coordination.sqlite import SqliteStore
from waystation.model.errors import (
    CompactedError,
    LeaseExpiredError,
    StoreInUseError,
    StoreUnavailableError,
)
from waystation.runtime.clock import ManualClock


class SqliteBackend:
    """A file of the test's own, on a clock of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()

    async def open(self) -> SqliteStore:
        self.store = SqliteStore(self.path, self.clock)
        await self.store.open()
        return self.store

    async def pass_time(self, ms: int) -> None:
        self.clock.advance(ms / 1_000)
        await self.store.expire()


class TestSqliteStore(StoreSuite):
    """The conformance suite on SQLite."""

    @pytest.fixture
    def backend(self, tmp_path: Path) -> SqliteBackend:
        return SqliteBackend(tmp_path / "coordination.db")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(tmp_path / "coordination.db", history_max=10) as store:
        yield store


async def test_opening_takes_less_than_twenty_milliseconds(tmp_path: Path) -> None:
    took_ms = []
    for attempt in range(5):
        began = time.perf_counter()
        async with SqliteStore(tmp_path / f"{attempt % 2}.db"):
            took_ms.append((time.perf_counter() - began) * 1_000)

    assert min(took_ms) < 20


async def test_leases_expire_by_themselves(tmp_path: Path) -> None:
    """On the system's clock, with nobody asking the store for anything."""
    async with SqliteStore(tmp_path / "coordination.db") as store:
        lease = await store.lease(20)
        result = await store.txn({}, {"a": b""}, leases={"a": lease.id})

        change = await anext(store.watch("", result.revision))

        assert change.deletes == ("a",)
        with pytest.raises(LeaseExpiredError):
            await lease.keep_alive()


async def test_leases_end_with_the_process_that_held_them(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "coordination.db")
    store = await backend.open()
    lease = await store.lease(60_000)
    before = await store.txn({}, {"brokers/1": b"", "kept": b""}, leases={"brokers/1": lease.id})
    await store.close()

    store = await backend.open()

    snapshot = await store.get("")
    assert list(snapshot.items) == ["kept"]
    assert snapshot.revision > before.revision
    await store.close()


async def test_a_watch_from_before_the_history_is_told_to_list_again(store: SqliteStore) -> None:
    first = await put(store, a=b"0")
    for n in range(12):
        await put(store, a=str(n).encode())

    with pytest.raises(CompactedError, match=f"revision {first}"):
        await anext(store.watch("", first))


async def test_a_watch_from_before_opening_is_told_to_list_again(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "coordination.db")
    store = await backend.open()
    first = await put(store, a=b"0")
    await put(store, a=b"1")
    await store.close()
    store = await backend.open()
    watch = store.watch("", first)

    with pytest.raises(CompactedError):
        await anext(watch)
    assert await anext(watch, None) is None
    await store.close()


async def test_a_cancelled_write_is_watched_if_it_happened(store: SqliteStore) -> None:
    follower = Follower(store.watch("", (await store.get("")).revision))
    for n in range(50):
        writing = asyncio.ensure_future(store.txn({}, {"a": b"%d" % n}))
        await asyncio.sleep(0)
        writing.cancel()

        assert await follower.upto(await put(store, b=b"%d" % n)) == await values(store)


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "coordination.db")
    await store.open()
    lease = await store.lease(1)
    await store.close()

    with pytest.raises(StoreUnavailableError, match="closed"):
        await store.get("")
    with pytest.raises(StoreUnavailableError, match="closed"):
        await lease.revoke()


async def test_a_second_process_is_refused_and_told_why(store: SqliteStore, tmp_path: Path) -> None:
    await put(store, a=b"1")
    script = """
import asyncio, sys
from waystation.coordination.sqlite import SqliteStore
asyncio.run(SqliteStore(sys.argv[1]).open())
"""
    other = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "coordination.db"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert "StoreInUseError" in other.stderr
    assert "in use by another process" in other.stderr
    assert await values(store) == {"a": b"1"}


async def test_a_second_store_of_the_same_process_is_refused_too(
    store: SqliteStore, tmp_path: Path
) -> None:
    with pytest.raises(StoreInUseError):
        await SqliteStore(tmp_path / "coordination.db").open()


async def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "coordination.db"
    path.write_bytes(b"somebody's letters" * 500)

    with pytest.raises(StoreUnavailableError, match="not a database"):
        await SqliteStore(path).open()
    assert path.read_bytes() == b"somebody's letters" * 500


@pytest.mark.parametrize("version", [0, 99])
async def test_a_database_of_another_program_or_version_is_refused(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "coordination.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE letters (text)")
        other.execute(f"PRAGMA user_version = {version}")
    other.close()

    with pytest.raises(StoreUnavailableError, match="format"):
        await SqliteStore(path).open()


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="nowhere"):
        await SqliteStore(tmp_path / "nowhere" / "coordination.db").open()


_WRITER = """
import asyncio, sys
from waystation.coordination.sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    n = int(next(iter((await store.get("n/0")).items.values()), (b"0",))[0])
    while True:
        n += 1
        keys = {f"n/{k}": b"%d" % n for k in range(20)}
        await store.txn({}, {**keys, f"made/{n}": bytes(2000)}, [f"made/{n - 3}"])
        print(n, flush=True)

asyncio.run(main())
"""


async def test_a_killed_writer_leaves_all_of_a_transaction_or_nothing(tmp_path: Path) -> None:
    """kill -9 in the middle of writing: what was answered is there, and nothing is half done."""
    path = tmp_path / "coordination.db"
    for kill in range(count(4, 100)):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, path], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout
            for _ in range(5 + 7 * kill):
                answered = int(writer.stdout.readline())
            writer.kill()
            answered = max([answered, *map(int, writer.stdout.read().split())])

        async with SqliteStore(path) as store:
            counters = set((await values(store, "n/")).values())
            made = sorted(int(key[5:]) for key in await values(store, "made/"))

        assert len(counters) == 1, "half a transaction"
        last = int(counters.pop())
        assert answered <= last <= answered + 1
        assert made == [n for n in range(last - 2, last + 1) if n > 0]


_FULL = """
import asyncio, resource, sys
from waystation.coordination.sqlite import SqliteStore
from waystation.model.errors import CompactedError, StoreUnavailableError

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    watch = store.watch("", (await store.get("")).revision)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    done = 0
    try:
        while True:
            await store.txn({}, {f"k/{done}": bytes(20_000), "done": b"%d" % (done + 1)})
            done += 1
    except StoreUnavailableError as error:
        print("refused:", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    snapshot = await store.get("")
    assert snapshot.items["done"].value == b"%d" % done, snapshot.items["done"]
    assert len(snapshot.items) == done + 1
    try:
        await anext(watch)
    except CompactedError:
        print("told to list again")
    result = await store.txn({"done": snapshot.items["done"].version}, {"done": b"0"})
    assert result.succeeded
    assert result.revision > snapshot.revision
    await store.close()

asyncio.run(main())
"""


def test_a_full_disk_refuses_a_write_whole_and_the_store_works_on(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _FULL, tmp_path / "coordination.db"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )

    assert ran.stderr == ""
    assert "refused:" in ran.stdout
    assert "told to list again" in ran.stdout
