"""A world is the same for the same seed, does what its faults say, and finds what is wrong."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from waystation.testing.network import End
from waystation.testing.world import InvariantBrokenError, Node, World


def two_nodes(seed: int = 0) -> tuple[World, Node, Node]:
    world = World(seed)
    return world, world.node("a"), world.node("b")


# --- time ---------------------------------------------------------------------------------------


def test_time_passes_only_between_events() -> None:
    world, node, _ = two_nodes()
    seen = []

    async def live() -> None:
        await asyncio.sleep(3600)
        seen.append((round(node.clock.monotonic(), 6), asyncio.get_running_loop()))

    node.spawn(live())
    world.run(3_599_000)

    assert seen == []

    world.run(2_000)

    assert seen == [(3600.0, node.loop)]
    assert world.now_ms == 3_601_000


def test_time_outs_locks_and_threads_of_asyncio_work_unchanged() -> None:
    world, node, _ = two_nodes()
    told: list[str] = []

    async def live() -> None:
        lock = asyncio.Lock()
        async with lock:
            try:
                async with asyncio.timeout(5):
                    await asyncio.Event().wait()
            except TimeoutError:
                told.append(f"late at {node.clock.monotonic():.0f}")
        told.append(await asyncio.to_thread(lambda: "from a thread"))
        results = await asyncio.gather(asyncio.sleep(1, "one"), asyncio.sleep(2, "two"))
        told.extend(results)

    node.spawn(live())
    world.run(10_000)

    assert told == ["late at 5", "from a thread", "one", "two"]


def test_wall_clocks_may_differ_and_go_at_one_pace() -> None:
    world, one, other = two_nodes()
    other.clock.skew_ms = -5_000
    world.run(1_000)

    assert one.clock.now() - other.clock.now() == 5_000
    assert one.clock.monotonic() == other.clock.monotonic() == 1.0


# --- the same seed ------------------------------------------------------------------------------


def chatter(seed: int) -> list[str]:
    """Everything that happens in a small world with every fault."""
    world = World(seed)
    heard: list[str] = []
    nodes = [world.node(name) for name in ("a", "b", "c")]
    for node in nodes:
        for other in nodes:
            faults = world.network.faults(node.name, other.name)
            faults.loss, faults.duplicate, faults.straggle = 0.2, 0.2, 0.1

    def say(node: Node) -> None:
        target = world.chance.choice([one for one in nodes if one is not node])
        number = world.schedule.steps
        world.network.send(
            node.name,
            target.name,
            lambda: heard.append(f"{world.now_ms:.3f} {node.name}-{number}-{target.name}"),
        )

    for node in nodes:
        world.every(7, lambda node=node: say(node))  # type: ignore[misc]
    world.after(300, nodes[0].crash)
    world.after(600, nodes[0].restart)
    world.run(2_000)
    return heard


def test_the_same_seed_gives_the_same_run() -> None:
    assert chatter(7) == chatter(7)
    assert chatter(7) != chatter(8)


# --- links --------------------------------------------------------------------------------------


def sent(faults: dict[str, Any], count: int = 2_000) -> list[int]:
    """What arrives of ``count`` datagrams, in the order of arrival."""
    world, *_ = two_nodes(3)
    link = world.network.faults("a", "b")
    for name, value in faults.items():
        setattr(link, name, value)
    arrived: list[int] = []
    for number in range(count):
        world.network.send("a", "b", lambda number=number: arrived.append(number))  # type: ignore[misc]
        world.run(1)
    world.run(10_000)
    return arrived


def test_a_good_link_carries_everything_once() -> None:
    arrived = sent({"delay_ms": (0.1, 0.2)})

    assert arrived == list(range(2_000))


def test_a_bad_link_loses_duplicates_and_reorders_in_its_proportions() -> None:
    lost = sent({"loss": 0.3})
    doubled = sent({"duplicate": 0.3})
    late = sent({"straggle": 0.3})

    assert 1_250 < len(set(lost)) < 1_550
    assert 2_450 < len(doubled) < 2_750
    assert late != sorted(late)
    assert sorted(late) == list(range(2_000))


def test_a_cut_link_carries_nothing_until_it_is_healed() -> None:
    world, *_ = two_nodes()
    heard: list[str] = []
    world.network.partition(["a"], ["b"])
    world.network.send("a", "b", lambda: heard.append("cut"))
    world.run(1_000)
    world.network.heal()
    world.network.send("a", "b", lambda: heard.append("healed"))
    world.run(1_000)

    assert heard == ["healed"]


def test_a_partition_leaves_each_side_whole() -> None:
    world = World(0)
    for name in "abcd":
        world.node(name)
    world.network.partition("ab", "cd")
    heard: list[str] = []
    for source, target in ("ab", "ac", "dc", "db"):
        world.network.send(source, target, lambda to=source + target: heard.append(to))  # type: ignore[misc]
    world.run(1_000)

    assert sorted(heard) == ["ab", "dc"]


# --- connections --------------------------------------------------------------------------------


class Answering:
    """Accepts connections and doubles every number it gets."""

    def __init__(self, world: World, name: str) -> None:
        self.ends: list[End] = []
        self.closed = 0
        world.network.listen(name, self.accept)

    def accept(self, end: End) -> None:
        self.ends.append(end)
        end.on_message = lambda number: end.send(number * 2)
        end.on_close = self._closed

    def _closed(self) -> None:
        self.closed += 1


def test_a_connection_keeps_its_order_however_late_its_packets_are() -> None:
    world, *_ = two_nodes()
    world.network.faults("a", "b").straggle = world.network.faults("b", "a").straggle = 0.3
    Answering(world, "b")
    near, answers = world.network.connect("a", "b"), []
    near.on_message = answers.append
    for number in range(500):
        near.send(number)
        world.run(1)
    world.run(10_000)

    assert answers == [number * 2 for number in range(500)]


def test_a_lost_packet_breaks_the_connection_and_both_ends_are_told() -> None:
    world, *_ = two_nodes()
    server = Answering(world, "b")
    near, told = world.network.connect("a", "b"), []
    near.on_close = lambda: told.append("near")
    world.network.faults("a", "b").loss = 1.0
    near.send(1)
    near.send(2)
    world.run(1_000)

    assert (told, server.closed) == (["near"], 1)
    assert not near.open


def test_nobody_answers_at_a_node_without_power() -> None:
    world, _, b = two_nodes()
    Answering(world, "b")
    b.crash()
    told: list[str] = []
    near = world.network.connect("a", "b")
    near.on_close = lambda: told.append("near")
    world.run(1_000)

    assert told == ["near"]


def test_who_was_connected_to_a_node_hears_of_its_crash_and_it_does_not() -> None:
    world, _, b = two_nodes()
    server = Answering(world, "b")
    near, told = world.network.connect("a", "b"), []
    near.on_close = lambda: told.append("near")
    world.run(10)
    b.crash()
    world.run(1_000)

    assert (told, server.closed) == (["near"], 0)


# --- crashes ------------------------------------------------------------------------------------


def test_nothing_of_a_crashed_node_gets_another_turn_not_even_to_clean_up() -> None:
    world, node, _ = two_nodes()
    told: list[str] = []

    async def live() -> None:
        try:
            await asyncio.sleep(1)
            told.append("lived on")
        finally:
            told.append("cleaned up")

    node.spawn(live())
    node.loop.call_later(1, lambda: told.append("called"))
    world.run(500)
    node.crash()
    world.run(5_000)

    assert told == []

    node.restart()
    node.spawn(live())
    world.run(5_000)

    assert told == ["lived on", "cleaned up"]


def test_what_an_event_or_a_task_raises_ends_the_run_with_its_seed() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("a bug")

    for start in (
        lambda world, node: node.spawn(fail()),
        lambda world, node: world.after(1_000, lambda: 1 // 0),
    ):
        world, node, _ = two_nodes(4711)
        start(world, node)
        with pytest.raises((ValueError, ZeroDivisionError)) as caught:
            world.run(5_000)
        assert "World(seed=4711) at 1000.0 ms" in caught.value.__notes__[0]


# --- invariants ---------------------------------------------------------------------------------


def test_an_invariant_is_checked_after_every_event_and_named_when_it_breaks() -> None:
    world, *_ = two_nodes(5)
    numbers: list[int] = []
    world.always("numbers stay below three", lambda: max(numbers, default=0) < 3)
    world.every(10, lambda: numbers.append(len(numbers)))
    world.note("it began")

    with pytest.raises(InvariantBrokenError, match="numbers stay below three") as caught:
        world.run(10_000)

    assert numbers[-1] == 3
    assert "it began" in caught.value.__notes__[0]


# --- planted bugs -------------------------------------------------------------------------------


class Ledger:
    """Keeps numbered entries on its disk: each once, in order, acknowledged when it is safe.

    Every ``plant`` is a mistake that only some fault shows.
    """

    def __init__(self, node: Node, plant: str) -> None:
        self._node, self._plant, self._path = node, plant, Path("/ledger")
        self.entries: list[int] = []
        self.start()

    def start(self) -> None:
        """Begin, or begin again after a crash."""
        self._file = self._node.disk.open(self._path, create=True)
        if self._plant != "forgets to sync the name":
            self._node.disk.sync_directory(self._path.parent)
        if self._plant == "reads nothing back after a crash":
            self.entries = []
        else:
            self.entries = list(self.durable())

    def durable(self) -> bytes:
        """What the disk holds now."""
        try:
            return self._node.disk.read(self._path).rstrip(b"\0")
        except FileNotFoundError:
            return b""

    def enter(self, number: int, acknowledge: Callable[[int], None]) -> None:
        if number in self.entries and self._plant != "enters twice what comes twice":
            acknowledge(number)
            return
        expected = len(self.entries) + 1
        if number != expected and self._plant == "takes what comes, as it comes":
            pass
        elif number > expected:
            return
        at = len(self.entries)
        self.entries.append(number)
        if self._plant == "acknowledges before it syncs":
            self._node.loop.call_later(0.05, self._file.datasync)
        self._file.pwrite(bytes([number]), at)
        if self._plant != "acknowledges before it syncs":
            self._file.datasync()
        acknowledge(number)


def keep_a_ledger(seed: int, plant: str) -> None:
    """Forty entries over a bad link to a node that crashes now and then."""
    world, client, server = two_nodes(seed)
    acknowledged: list[int] = []
    for faults in world.network.all_faults():
        faults.loss, faults.duplicate, faults.straggle = 0.1, 0.1, 0.1
    ledger = Ledger(server, plant)

    def enter(number: int) -> None:
        def answer(done: int) -> None:
            world.network.send("b", "a", lambda: acknowledged.append(done))

        world.network.send("a", "b", lambda: ledger.enter(number, answer))

    async def live() -> None:
        for first in range(1, 41, 4):
            wanted = range(first, first + 4)
            while left := [number for number in wanted if number not in acknowledged]:
                for number in left:
                    enter(number)
                await asyncio.sleep(0.2 if plant != "never asks again" else 1e6)

    def in_order_and_once() -> None:
        durable = list(ledger.durable()) if server.alive else []
        assert durable == sorted(set(durable)), f"the ledger says {durable}"

    def kept() -> None:
        if server.alive:
            lost = [one for one in acknowledged if one not in ledger.entries]
            assert not lost, f"{lost} were acknowledged"

    def crash() -> None:
        if server.alive:
            server.crash()
            world.after(100, restart)

    def restart() -> None:
        server.restart()
        ledger.start()

    world.always("entries are in order, each once", in_order_and_once)
    world.always("what was acknowledged is kept", kept)
    world.every(500, crash)
    client.spawn(live())
    world.run(60_000)
    assert len(acknowledged) >= 40, "no progress"


@pytest.mark.parametrize("seed", range(10))
def test_an_honest_ledger_survives(seed: int) -> None:
    keep_a_ledger(seed, plant="")


@pytest.mark.parametrize(
    "plant",
    [
        "acknowledges before it syncs",
        "reads nothing back after a crash",
        "enters twice what comes twice",
        "forgets to sync the name",
        "never asks again",
        "takes what comes, as it comes",
    ],
)
def test_a_planted_bug_is_found(plant: str) -> None:
    def breaks(seed: int) -> bool:
        try:
            keep_a_ledger(seed, plant)
        except AssertionError:
            return True
        return False

    assert any(breaks(seed) for seed in range(20))


def test_who_spins_without_letting_time_pass_is_found_out() -> None:
    world = World(1)

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    world.node("one").spawn(spin())

    with pytest.raises(InvariantBrokenError, match="time goes on"):
        world.run(1_000)
