"""A world of its own: nodes, links, disks and time, all by the luck of one seed.

    world = World(seed)
    broker, client = world.node("broker"), world.node("client")
    world.network.faults("client", "broker").loss = 0.1
    world.always("no offset is lost", no_offset_is_lost)
    client.spawn(produce())
    world.after(5_000, broker.crash)
    world.run(60_000)

1. The same seed and program give the same run, event by event, on every machine.
2. Whatever is promised with ``always`` is checked after every event.
3. Whoever does the same again and again without letting time pass is found out.
4. A failure names its seed, its time and the last things that were noted.

Code under test gets its time from ``node.clock``, its loop from asyncio as ever, its luck from
``world.chance`` and its files from ``node.disk``.  Nothing may come from elsewhere.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from waystation.testing.disk import SimulatedDisk
from waystation.testing.network import Network
from waystation.testing.virtual_time import Schedule, VirtualClock, VirtualLoop, virtual_loop

__all__ = ["InvariantBrokenError", "Node", "World"]

_NOTES_KEPT = 40
_EVENTS_PER_MOMENT_MAX = 100_000


class InvariantBrokenError(AssertionError):
    """Something that shall always hold did not."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        super().__init__(f"broken: {name}: {why}" if why else f"broken: {name}")


class Node:
    """A machine that can lose power; its loop, and all that runs on it, goes with it."""

    def __init__(self, world: "World", name: str) -> None:
        self.name = name
        self.world = world
        self.life = 0
        self.clock = VirtualClock(world.schedule)
        self.loop = virtual_loop(world.schedule)
        self.disk = SimulatedDisk(world.chance.randrange(1 << 32))
        self.when_crashed: list[Callable[[], None]] = []

    @property
    def alive(self) -> bool:
        """Whether it has power."""
        return not self.loop.dead

    def drift(self, skew_ms: int, rate: float) -> None:
        """Let its clocks be off by so much, and run so fast."""
        self.clock.skew_ms, self.clock.rate = skew_ms, rate
        self.loop.rate = rate

    def pause(self) -> None:
        """Stand still, and notice nothing of it."""
        if self.alive and not self.loop.paused:
            self.world.note(f"{self.name} is paused")
            self.loop.paused = True

    def go_on(self) -> None:
        """Do what was to be done while it stood still."""
        if self.alive and self.loop.paused:
            self.world.note(f"{self.name} goes on")
            self.loop.go_on()

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str = "") -> None:
        """Run ``coro`` for as long as the node lives; what it raises ends the world's run."""
        task = self.loop.create_task(coro, name=name or self.name)
        task.add_done_callback(self._ended)

    def crash(self) -> None:
        """Lose power: nothing that runs here gets another turn, connections break."""
        if self.alive:
            self.world.note(f"{self.name} crashes")
            self.loop.dead = True
            self.disk.crash()
            self.world.network.lose(self.name)
            for told in self.when_crashed:
                told()

    def restart(self) -> None:
        """Have power again, with the disk that the crash left and a clock that went on."""
        assert not self.alive, f"{self.name} was never off"
        self.world.note(f"{self.name} restarts")
        self.life += 1
        self.world.graves.append(self.loop)
        self.loop = virtual_loop(self.world.schedule, self.clock.rate)

    def _ended(self, task: Any) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.world.schedule.fail(task.exception())


class World:
    """Everything there is; nothing happens outside ``run``."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.schedule = Schedule()
        self.clock = VirtualClock(self.schedule)
        self.network = Network(self.schedule, self.chance)
        self.nodes: dict[str, Node] = {}
        self.graves: list[VirtualLoop] = []
        """Loops of before a crash: what ran on them must not be collected, and so cleaned up."""
        self._loop = virtual_loop(self.schedule)
        self._invariants: dict[str, Callable[[], object]] = {}
        self._notes: deque[str] = deque(maxlen=_NOTES_KEPT)

    @property
    def now_ms(self) -> float:
        """Milliseconds since the world began."""
        return self.schedule.now_s * 1_000

    def node(self, name: str) -> Node:
        """A new node with power."""
        assert name not in self.nodes, f"there are two nodes called {name}"
        node = self.nodes[name] = Node(self, name)
        self.network.join(node)
        return node

    def after(self, delay_ms: float, run: Callable[[], object]) -> None:
        """Let fate do something once; it happens to no node, so no crash prevents it."""
        self._loop.call_later(delay_ms / 1_000, run)

    def every(self, interval_ms: float, run: Callable[[], object]) -> None:
        """Let fate do something again and again, a little irregularly."""

        def again() -> None:
            run()
            self.after(interval_ms * self.chance.uniform(0.5, 1.5), again)

        self.after(interval_ms * self.chance.random(), again)

    def always(self, name: str, holds: Callable[[], object]) -> None:
        """Promise that ``holds`` neither raises nor returns ``False``, after every event."""
        self._invariants[name] = holds

    def note(self, text: str) -> None:
        """Remember what happened, for whoever must find out why."""
        self._notes.append(f"{self.now_ms:>10.1f} ms  {text}")

    def run(self, duration_ms: float, check: Callable[[], object] | None = None) -> None:
        """Let ``duration_ms`` pass."""
        schedule = self.schedule
        until_s = schedule.now_s + duration_ms / 1_000
        moment_s, since = schedule.now_s, schedule.steps
        try:
            while schedule.step(until_s):
                self._check(check)
                if schedule.now_s != moment_s:
                    moment_s, since = schedule.now_s, schedule.steps
                elif schedule.steps - since > _EVENTS_PER_MOMENT_MAX:
                    raise InvariantBrokenError("time goes on", "the same happens again and again")
        except Exception as error:
            error.add_note(self.story())
            raise
        self.schedule.now_s = until_s

    def end(self) -> None:
        """Let nothing of it happen any more, whoever still holds a part of it."""
        for loop in (self._loop, *(node.loop for node in self.nodes.values())):
            loop.dead = True

    def _check(self, check: Callable[[], object] | None) -> None:
        for name, holds in self._invariants.items():
            try:
                answer = holds()
            except AssertionError as broken:
                raise InvariantBrokenError(name, str(broken)) from broken
            if answer is False:
                raise InvariantBrokenError(name, "")
        if check is not None and check() is False:
            raise InvariantBrokenError(getattr(check, "__name__", "check"), "")

    def story(self) -> str:
        """Where it is, and the last things that were noted."""
        head = f"World(seed={self.seed}) at {self.now_ms:.1f} ms, event {self.schedule.steps}:"
        return "\n".join([head, *self._notes])
