"""A cluster's metadata goes into a store whole, or nobody can use what is there of it."""

from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path

import pytest

from waystation.cluster.values import ClusterValue, encode
from waystation.coordination.sqlite import SqliteStore
from waystation.coordination.store import LeaseId, TxnResult
from waystation.model.errors import StoreUnavailableError
from waystation.node import installing
from waystation.node.installing import INSTALLING, StoreTakenError, check, install

OURS = {
    "cluster": encode(ClusterValue(id="ours")),
    **{f"topics/t{number}": b"x" * 5_000 for number in range(210)},
}


class _Unreliable(SqliteStore):
    """Fails at the transaction with that number, before or after it happened, or for good."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.fails_at, self.happens, self.dead, self.asked = -1, False, False, 0

    async def txn(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        leases: Mapping[str, LeaseId] = {},
    ) -> TxnResult:
        self.asked += 1
        if self.asked < self.fails_at or self.fails_at < 0:
            return await super().txn(compares, puts, deletes, leases=leases)
        if self.asked == self.fails_at and self.happens:
            await super().txn(compares, puts, deletes, leases=leases)
        if not self.dead:
            self.fails_at = -1
        raise StoreUnavailableError("no answer")


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[_Unreliable]:
    monkeypatch.setattr(installing, "_PAUSE_S", 0.0)
    async with _Unreliable(tmp_path / "target.sqlite") as store:
        yield store


async def _content(store: SqliteStore) -> dict[str, bytes]:
    return {key: found.value for key, found in (await store.get("")).items.items()}


async def test_all_of_it_is_there_and_nothing_else(store: _Unreliable) -> None:
    assert await check(store, OURS)
    assert await install(store, OURS)
    assert await _content(store) == OURS
    assert not await install(store, OURS)
    assert not await check(store, OURS)


@pytest.mark.parametrize("happens", [False, True])
@pytest.mark.parametrize("dead", [False, True])
async def test_interrupted_anywhere_it_is_done_again(
    store: _Unreliable, happens: bool, dead: bool
) -> None:
    """``dead``: whoever installs gives up, and another one begins anew with other content."""
    fails_at = steps = 1
    while True:
        store.asked, store.fails_at, store.happens, store.dead = 0, fails_at, happens, dead
        old = {**OURS, "topics/t7": b"old", "topics/gone": b"old"} if dead else OURS
        if dead:
            try:
                await install(store, old)
                steps = 0  # it came through before the failure
            except StoreUnavailableError:
                pass
            store.fails_at = -1
            content = await _content(store)
            if "cluster" in content:
                assert content == old
            else:
                assert await install(store, OURS)
                assert await _content(store) == OURS
        else:
            await install(store, OURS)
            assert await _content(store) == OURS
            steps = store.asked >= fails_at
        if not steps:
            break
        fails_at += 1
        there = list(await _content(store))
        for at in range(0, len(there), 100):
            await store.txn({}, {}, there[at : at + 100])

    assert fails_at > 4


async def test_the_last_step_makes_it_a_cluster(store: _Unreliable) -> None:
    """Whatever is seen before it has no ``cluster``, so no broker goes on from it."""
    seen: list[bool] = []
    watch = store.watch("", 0)
    await install(store, OURS, before_last=lambda: seen.append(store.asked > 3))
    founded_at = 0
    async for change in watch:
        if "cluster" in change.puts:
            founded_at = change.revision
            assert INSTALLING in change.deletes
            break

    assert seen == [True]
    assert founded_at == (await store.get("")).revision


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        ({"cluster": encode(ClusterValue(id="theirs"))}, "holds cluster theirs already"),
        ({"brokers/4": b"{}"}, "brokers/4 are registered"),
        ({"topics/a": b"{}"}, "is not empty, it has e.g. topics/a"),
        ({INSTALLING: encode(ClusterValue(id="theirs"))}, "cluster theirs is half way"),
    ],
)
async def test_what_others_have_there_is_left_alone(
    store: _Unreliable, there: dict[str, bytes], reason: str
) -> None:
    await store.txn({}, there)
    before = await store.get("")

    for attempt in (install, check):
        with pytest.raises(StoreTakenError, match=reason):
            await attempt(store, OURS)
    assert await store.get("") == before


async def test_a_cluster_that_is_founded_meanwhile_wins(store: _Unreliable) -> None:
    theirs = encode(ClusterValue(id="theirs"))

    def interrupt() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        await install(store, OURS, before_last=interrupt)
    await store.txn({"cluster": 0}, {"cluster": theirs})

    with pytest.raises(StoreTakenError, match="theirs"):
        await install(store, OURS)
    assert (await _content(store))["cluster"] == theirs
