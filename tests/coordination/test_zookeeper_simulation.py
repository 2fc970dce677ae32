"""The ZooKeeper store on a simulated service, by seed: every answer is checked against all states.

What real servers do rarely happens here all the time: servers that lag, connections that move,
answers that are lost, several stores that change the same keys between any two steps.  The
planted bugs below prove that the checks would notice.
"""

import asyncio
import contextlib
import inspect
import random
import sys
from itertools import count as counting
from itertools import pairwise
from types import ModuleType

import pytest
from tests.conformance.store_suite import Follower
from tests.coordination.zookeeper_world import SimulatedSession, State, ZookeeperWorld
from tests.support.soak import count

from waystation.coordination import zookeeper as store_module
from waystation.coordination import zookeeper_plan as plan_module
from waystation.coordination import zookeeper_reader as reader_module
from waystation.coordination.store import ABSENT, LeaseId, Versioned
from waystation.coordination.zookeeper import ZookeeperStore
from waystation.coordination.zookeeper_layout import Layout, decode_item, key_of
from waystation.coordination.zookeeper_plan import Create, Delete
from waystation.coordination.zookeeper_session import Access
from waystation.model.errors import CompactedError, StoreUnavailableError
from waystation.testing.virtual_time import virtual_loop

LAYOUT = Layout("w")
KEYS = ("a", "b", "c/d", "c/e")
STORES, TASKS, STEPS = 3, 2, 12


class BrokenError(Exception):
    """A promise that was not kept."""


class Checked:
    """A store whose every answer is compared with what the service really held."""

    def __init__(self, world: ZookeeperWorld, store: ZookeeperStore) -> None:
        self._world = world
        self._store = store

    async def get(self, prefix: str) -> dict[str, Versioned]:
        asked_at = self._revision(self._world.zxid)
        read = await self._store.get(prefix)
        if read.revision < asked_at:
            raise BrokenError(f"read {read.revision} after {asked_at} was decided")
        if read.items != self._items(read.revision):
            raise BrokenError(f"read {read.items}, revision {read.revision} was otherwise")
        return read.items

    async def txn(
        self, compares: dict[str, int], puts: dict[str, bytes], deletes: list[str]
    ) -> None:
        asked_at = self._world.zxid
        try:
            result = await self._store.txn(compares, puts, deletes)
        except StoreUnavailableError:
            return
        during = range(asked_at, self._world.zxid + 1)
        if not result.succeeded:
            if all(self._holds(compares, z) for z in during):
                raise BrokenError(f"{compares} held all the time, but was refused")
        elif not self._happened(result.revision, compares, puts, deletes) and (
            puts or not any(self._is_nothing(z, compares, deletes) for z in during)
        ):
            raise BrokenError(f"{compares}, {puts}, {deletes} is not what {result} was")

    def _happened(
        self, revision: int, compares: dict[str, int], puts: dict[str, bytes], deletes: list[str]
    ) -> bool:
        """Whether the change that made ``revision`` is this one."""
        before, after = self._items(revision - 1), self._items(revision)
        wanted = {key: item for key, item in before.items() if key not in deletes}
        wanted |= {key: Versioned(value, revision) for key, value in puts.items()}
        return self._holds(compares, revision - 1) and wanted == after

    def _is_nothing(self, zxid: int, compares: dict[str, int], deletes: list[str]) -> bool:
        """Whether deleting would have changed nothing then, though it was allowed."""
        return self._holds(compares, zxid) and not self._items(zxid).keys() & set(deletes)

    def _holds(self, compares: dict[str, int], zxid: int) -> bool:
        items = self._items(zxid)
        absent = Versioned(b"", ABSENT)
        return all(items.get(key, absent).version == version for key, version in compares.items())

    def _items(self, zxid: int) -> dict[str, Versioned]:
        return items_of(self._world.states[zxid])

    def _revision(self, zxid: int) -> int:
        return self._world.states[zxid][LAYOUT.head].mzxid


def items_of(state: State) -> dict[str, Versioned]:
    start = f"{LAYOUT.items}/"
    found = {key_of(p.removeprefix(start)): n for p, n in state.items() if p.startswith(start)}
    return {
        key: Versioned(decode_item(key, node.data).value, node.mzxid)
        for key, node in sorted(found.items())
    }


async def live(seed: int, kind: type[ZookeeperStore]) -> None:
    """Some stores change the same few keys, and follow them; what they are told is checked."""
    world = ZookeeperWorld(seed)
    names = counting()
    # A seed means one run, so that names must not be by chance.
    sys.modules[kind.__module__].__dict__["_new_name"] = lambda: f"{next(names):08}"
    stores = []
    for _ in range(STORES):
        stores.append(
            kind(
                Access(("simulated:1",)),
                "w",
                begin=lambda *_, on_connected: SimulatedSession(world, on_connected),
            )
        )
        await stores[-1].open()
    with_leases = seed % 2 == 1
    world.trouble = random.Random(seed).choice((0.0, 0.003, 0.01) if with_leases else (0.0, 0.05))
    learning = asyncio.ensure_future(world.run())
    followers = [asyncio.ensure_future(follow(store)) for store in stores]
    leases = [
        asyncio.ensure_future(hold(random.Random(f"{seed} lease {n}"), world, store, n))
        for n, store in enumerate(stores)
        if with_leases
    ]
    await asyncio.gather(
        *(
            work(
                random.Random(f"{seed} {n} {task}"),
                Checked(world, store),
                KEYS[: 1 + seed // 2 % 4],
            )
            for n, store in enumerate(stores)
            for task in range(TASKS)
        )
    )
    world.trouble = 0.0
    for lease in leases:
        lease.cancel()
    await asyncio.gather(*leases, return_exceptions=True)
    while any(key.startswith("leased/") for key in items_of(world.states[-1])):
        await asyncio.sleep(0.1)
    check_leases(world)
    await stores[0].txn({}, {"end": b""})
    for n, follower in enumerate(followers):
        copy = await asyncio.wait_for(follower, 1_000)
        if copy != (await stores[n].get("")).items or copy != items_of(world.states[-1]):
            raise BrokenError(f"store {n} followed to {copy}")
    for store in stores:
        await store.close()
    learning.cancel()


async def hold(
    chance: random.Random, world: ZookeeperWorld, store: ZookeeperStore, start: int
) -> None:
    """Leases one after the other, each with a key that nobody else touches."""
    for lease in range(start * 1_000 + 1, start * 1_000 + 11):
        path = LAYOUT.lease(LeaseId(lease))
        world.commit([Create(path, b"")])
        try:
            with contextlib.suppress(StoreUnavailableError):
                key = f"leased/{lease}"
                await store.txn({}, {key: b""}, leases={key: LeaseId(lease)})
            await asyncio.sleep(chance.choice((0.01, 0.1, 0.3)))
        finally:
            world.commit([Delete(path, -1)])


def check_leases(world: ZookeeperWorld) -> None:
    """Keys of a lease go after it, never before."""
    for before, after in pairwise(world.states):
        for key in items_of(before).keys() - items_of(after).keys():
            kind, _, lease = key.partition("/")
            if kind == "leased" and LAYOUT.lease(LeaseId(int(lease))) in before:
                raise BrokenError(f"{key} went before its lease")


async def follow(store: ZookeeperStore) -> dict[str, Versioned]:
    """A copy kept by watching, up to the item ``end``."""
    while True:
        try:
            read = await store.get("")
        except StoreUnavailableError:
            continue
        follower = Follower(store.watch("", read.revision))
        follower.items = dict(read.items)
        try:
            while "end" not in follower.items:
                follower.apply(await anext(follower.watch))
        except CompactedError:
            continue
        if follower.revisions != sorted(set(follower.revisions)):
            raise BrokenError(f"revisions came as {follower.revisions}")
        return follower.items


async def work(chance: random.Random, store: Checked, keys: tuple[str, ...]) -> None:
    """Random changes of few keys, so that everybody is in everybody's way."""
    known: dict[str, int] = {}
    for step in range(STEPS):
        if not known or chance.random() < 0.3:
            try:
                items = await store.get("")
            except StoreUnavailableError:
                continue
            # Some of what is remembered is out of date, which comparing must find out.
            known |= {key: items[key].version if key in items else ABSENT for key in keys}
        compared = chance.sample(keys, min(len(keys), chance.randrange(3)))
        written = chance.sample(keys, min(len(keys), chance.randrange(1, 3)))
        deleted = [key for key in written if chance.random() < 0.5]
        puts = {key: b"%d" % step for key in written if key not in deleted}
        await store.txn({key: known[key] for key in compared}, puts, deleted)


def run(seed: int, kind: type[ZookeeperStore] = ZookeeperStore) -> None:
    virtual_loop().run_until_complete(live(seed, kind))


@pytest.fixture(autouse=True)
def _names_by_chance_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_new_name", store_module._new_name)


@pytest.mark.parametrize("seed", range(count(25, 3_000)))
def test_every_answer_is_one_that_the_port_allows(seed: int) -> None:
    run(seed)


# --- planted bugs: each must be noticed ------------------------------------------------------

# what goes wrong: (the module, the line in it, what stands there instead)
PLANTED = {
    "a recreated key passes for the old one": (
        plan_module,
        "if any(version != ABSENT for version in compares.values()):",
        "if False:",
    ),
    "nobody is told that something was deleted": (plan_module, "if gone:", "if False:"),
    "absence is not compared": (
        plan_module,
        "return [Check(path, held.writes)] if held else _absent(path)",
        "return [Check(path, held.writes)] if held else []",
    ),
    "what is written is not compared": (
        plan_module,
        "return copy.items[key].writes if key in compares else _ANY",
        "return _ANY",
    ),
    "a key that came meanwhile is not deleted": (
        plan_module,
        "if key in gone else _absent(path)",
        "if key in gone else []",
    ),
    "what was read while others wrote is believed": (
        reader_module,
        "if head.mzxid == revision:",
        "if head.mzxid == revision or read:",
    ),
    "what was read over two connections is believed": (
        reader_module,
        "if self._session.connections != connection:",
        "if False:",
    ),
    "our own write hides a later one": (
        reader_module,
        "return touched | await self._items(",
        "return Last(touched) | await self._items(",
    ),
    "deleted keys stay in the copy": (reader_module, "copy.items.pop(key, None)", "pass"),
    "a server that lags is believed": (
        store_module,
        "if asking_all or self._reader.distrusted:",
        "if self._reader.distrusted:",
    ),
    "leases are looked for at a server that lags": (
        store_module,
        "if self._session.connections != connection:",
        "if False:",
    ),
    "a compare fails on an old copy": (
        store_module,
        "if not self._reader.copy.holds(compares):",
        "if False:",
    ),
}


# Rare ones are looked for where they were found.
FIRST_SEED = {
    "a recreated key passes for the old one": 130,
    "nobody is told that something was deleted": 130,
    "what was read over two connections is believed": 398,
    "leases are looked for at a server that lags": 129,
}
WANTED = {"Reader", "ZookeeperStore"}


class Last(dict):  # type: ignore[type-arg]
    """What is in it wins over what is put over it."""

    def __or__(self, other: dict[str, object]) -> dict[str, object]:  # type: ignore[override]
        return {**other, **self}


def changed(module: ModuleType, right: str = "", wrong: str = "") -> ModuleType:
    """The module with ``wrong`` in the place of ``right``."""
    source = inspect.getsource(module)
    assert right in source
    other = ModuleType(f"broken.{module.__name__}")
    other.__dict__["Last"] = Last
    sys.modules[other.__name__] = other
    exec(compile(source.replace(right, wrong), other.__name__, "exec"), other.__dict__)
    # What both speak of must be the same: only functions differ, and the class that is wanted.
    words = {name: kind for name, kind in vars(module).items() if isinstance(kind, type)}
    other.__dict__.update(words.items() - {(name, words[name]) for name in WANTED & words.keys()})
    return other


def broken_store(bug: str) -> type[ZookeeperStore]:
    module, right, wrong = PLANTED[bug]
    broken = changed(module, right, wrong)
    if module is store_module:
        return broken.ZookeeperStore
    store = changed(store_module)
    name = "plan" if module is plan_module else "Reader"
    store.__dict__[name] = broken.__dict__[name]
    return store.ZookeeperStore


@pytest.mark.parametrize("bug", PLANTED)
def test_the_simulation_notices(bug: str) -> None:
    kind = broken_store(bug)
    first = FIRST_SEED.get(bug, 0)
    for seed in range(first, first + 200):
        try:
            run(seed, kind)
        except (BrokenError, TimeoutError) as noticed:
            sys.stderr.write(f"{seed=}: {noticed}\n")
            return
    raise AssertionError("nobody noticed")
