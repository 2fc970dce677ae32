"""The store of simulations: the port's promises, and what becomes of them on bad links."""

import asyncio

import pytest
from tests.conformance.store_suite import StoreSuite

from waystation.model.errors import StoreUnavailableError
from waystation.runtime.clock import ManualClock
from waystation.testing.simulated_store import (
    SimulatedStore,
    StoreServer,
    carry_at_once,
    carry_over,
)
from waystation.testing.world import World


class SimulatedBackend:
    """A server of the test's own, on a clock of its own."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = StoreServer(self.clock)

    async def open(self) -> SimulatedStore:
        return SimulatedStore(self.server, carry_at_once)

    async def pass_time(self, ms: int) -> None:
        self.clock.advance(ms / 1_000)
        self.server.expire()


class TestSimulatedStore(StoreSuite):
    """The conformance suite on the simulated store."""

    @pytest.fixture
    def backend(self) -> SimulatedBackend:
        return SimulatedBackend()


def world_with_store(seed: int) -> tuple[World, StoreServer, SimulatedStore]:
    world = World(seed)
    world.node("asker")
    server = StoreServer(world.node("store").clock)
    return world, server, SimulatedStore(server, carry_over(world.network, "asker", "store"))


def test_who_gets_no_answer_does_not_know_whether_it_happened() -> None:
    happened = set()
    for seed in range(20):
        world, server, store = world_with_store(seed)
        for faults in world.network.all_faults():
            faults.loss, faults.duplicate = 0.4, 0.5
        told: list[bool] = []

        async def write(store: SimulatedStore = store, told: list[bool] = told) -> None:
            for number in range(20):
                try:
                    told.append((await store.txn({}, {f"k/{number}": b""})).succeeded)
                except StoreUnavailableError:
                    told.append(False)

        world.nodes["asker"].spawn(write())
        world.run(60_000)

        assert len(told) == 20
        assert server.revision == len(server.items), "a write was done twice"
        happened |= {(known, f"k/{n}" in server.items) for n, known in enumerate(told)}

    assert happened == {(True, True), (False, True), (False, False)}


def test_a_watch_outlives_bad_links_and_misses_nothing() -> None:
    world, server, store = world_with_store(7)
    faults = world.network.faults("store", "asker")
    faults.loss = faults.straggle = 0.3
    seen: dict[str, bytes] = {}

    async def watch() -> None:
        async for change in store.watch("", 0):
            seen.update({key: item.value for key, item in change.puts.items()})
            for key in change.deletes:
                del seen[key]

    async def write() -> None:
        for number in range(200):
            server.txn({}, {f"k/{number % 7}": b"%d" % number}, (), {})
            await asyncio.sleep(0.05)

    world.nodes["asker"].spawn(watch())
    world.nodes["store"].spawn(write())
    world.run(60_000)

    assert seen == {key: item.value for key, item in server.items.items()}


def test_a_node_that_is_paused_does_later_what_it_had_to_do() -> None:
    world = World(1)
    node, done = world.node("one"), list[float]()

    async def count() -> None:
        while True:
            await asyncio.sleep(0.1)
            done.append(round(world.now_ms))

    node.spawn(count())
    world.after(250, node.pause)
    world.after(750, node.go_on)
    world.run(1_000)

    assert done == [100, 200, 750, 850, 950]


def test_a_clock_that_runs_fast_gains() -> None:
    world = World(1)
    node, done = world.node("one"), list[float]()
    node.drift(500, 1.25)

    async def wait() -> None:
        began_s, began = node.clock.monotonic(), node.clock.now()
        await asyncio.sleep(10)
        done.extend((world.now_ms, node.clock.monotonic() - began_s, node.clock.now() - began))

    node.spawn(wait())
    world.run(20_000)

    assert done == pytest.approx([8_000, 10, 10_000], rel=1e-3)
