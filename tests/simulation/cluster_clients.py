"""Clients of a simulated cluster, each on a machine of its own, and what they write down.

They are the clients that chaos tests use (``waystation.testing``), with the world's wire and time
in the place of sockets and clocks: a client knows its machine by the loop that it runs on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch

from tests.simulation.cluster_loose import Loose
from waystation.client.admin import Admin
from waystation.client.consumer import Consumer
from waystation.client.producer import Producer
from waystation.model.errors import TopicExistsError, WaystationError
from waystation.testing import workload
from waystation.testing.history import Diary, Event
from waystation.testing.processors import Step, process
from waystation.testing.readers import NeverSettledError, read_to_end, wander
from waystation.testing.simulated_wire import connecting
from waystation.testing.workload import lives
from waystation.testing.world import Node, World
from waystation.testing.writers import Pace, Target, write_plainly, write_transactions

C = TypeVar("C")
Live = Callable[[Diary], Awaitable[None]]

INPUT, OUTPUT = "orders", "processed"
_PATIENCE_S = 60.0
_MESSAGES_PER_S = [5.0, 20.0]
_REACHING = {
    "connect_timeout_ms": 1_000,
    "request_timeout_ms": 2_000,
    "metadata_timeout_ms": 2_000,
    "metadata_max_age_ms": 2_000,
    "retry_backoff_max_ms": 500,
}
_DELIVERING = {"delivery_timeout_ms": 8_000}


class Clients:
    """Everyone who uses the cluster; ``history`` is what they saw of it."""

    def __init__(
        self,
        world: World,
        bootstrap: str,
        partitions: int,
        storm_s: float,
        *,
        server_side: bool = False,
        racks: tuple[str, ...] = (),
    ) -> None:
        """Those who read do so in ``racks``, if there are any."""
        self.history: list[Event] = []
        self.has_topics = self.finished = False
        self.busy: set[str] = set()
        """Who has not come to the end of its work."""
        self._world = world
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._storm_s, self._until_s = storm_s, 0.0
        self._grouping = {"group_protocol": "consumer"} if server_side else {}
        self._racks = racks
        self.loose = Loose(partitions)
        self._machines: dict[str, Node] = {}
        self._retired: set[str] = set()
        self._work: dict[str, Callable[[str, Random], Awaitable[None]]] = {}

    # --- who there is ---------------------------------------------------------------------------

    def enlist(self, *, writers: int, transactional: int, processors: int, readers: int) -> None:
        """Let so many of each be there; they begin at once."""
        self._until_s = self._world.schedule.now_s + self._storm_s
        for number in range(writers):
            self._add(f"w{number}", self._write)
        for number in range(transactional):
            self._add(f"t{number}", partial(self._write_in_transactions, f"t{number}"))
        for number in range(processors):
            self._add(f"s{number}", partial(self._process, f"s{number}"))
        for number in range(readers):
            self._add(f"r{number}", self._read)

    def enlist_loose(self) -> None:
        """Let there be writers who ask for one replica's word, and for none."""
        for acks in ("0", "1"):
            self._add(f"l{acks}", partial(self._write_loosely, acks))

    @property
    def names(self) -> list[str]:
        """Of those who can be killed."""
        return list(self._work)

    def revive(self, name: str) -> None:
        """Start a client that was killed again, as the program that it is."""
        machine = self._machines[name]
        if not machine.alive and name not in self._retired:
            machine.restart()
            self._begin(name)

    def retire(self) -> None:
        """Leave one processor: it comes to the end of its work when it is alone in its group."""
        for name, machine in self._machines.items():
            if name.startswith("s") and name != "s0":
                self._retired.add(name)
                machine.crash()
                self.busy.discard(name)

    def machine(self, name: str) -> Node:
        """A machine for somebody who cannot be killed, such as an operator."""
        if name not in self._machines:
            self._machines[name] = self._world.node(name)
        return self._machines[name]

    def _add(self, name: str, work: Callable[[str, Random], Awaitable[None]]) -> None:
        self.machine(name)
        self._work[name] = work
        self._begin(name)

    def _begin(self, name: str) -> None:
        machine, chance = self._machines[name], Random(self._world.chance.getrandbits(64))

        async def run() -> None:
            await self._work[name](f"{name}/{machine.life}", chance)
            self.busy.discard(name)

        self.busy.add(name)

        machine.spawn(run(), name)

    # --- what they do ---------------------------------------------------------------------------

    async def make_topics(
        self, replicas: int, configs: dict[str, str], topics: Sequence[str] = (INPUT, OUTPUT)
    ) -> None:
        """However long it takes."""
        while True:
            try:
                async with Admin(self._bootstrap) as admin:
                    for topic in topics:
                        await _if_missing(
                            admin.create_topic(
                                topic,
                                self._partitions,
                                replication_factor=replicas,
                                configs=configs,
                            )
                        )
                self.has_topics = True
                return
            except (WaystationError, OSError) as error:
                self._world.note(f"topics are not made: {error}")
            await asyncio.sleep(0.2)

    async def operate(self, wish: Callable[[Admin], Awaitable[object]], what: str) -> None:
        """An operator's wish, which may come true or not."""
        try:
            async with Admin(self._bootstrap) as admin:
                self._world.note(f"{what}: {await wish(admin)}")
        except (WaystationError, OSError) as error:
            self._world.note(f"{what}: {type(error).__name__} {error}")

    async def read_everything(self) -> None:
        """The last reader: everything, to the end."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _PATIENCE_S
        life = 0
        while True:
            diary = Diary(f"last.{life}", self.history.append, self._now_ns)
            try:
                await read_to_end(self._bootstrap, [INPUT, OUTPUT], diary, _PATIENCE_S)
                break
            except (WaystationError, OSError) as error:
                self._world.note(f"not read to the end: {error}")
                if isinstance(error, NeverSettledError) or loop.time() > deadline_s:
                    raise
            life += 1
            await asyncio.sleep(0.2)
        self.finished = True

    async def _write(self, name: str, chance: Random) -> None:
        pace = Pace(chance, chance.choice(_MESSAGES_PER_S), self._until_s)
        target = Target(self._bootstrap, [INPUT], self._partitions)
        await self._live(name, lambda diary: write_plainly(target, diary, pace), self._until_s)

    async def _write_loosely(self, acks: str, name: str, chance: Random) -> None:
        def make(acks: str) -> Producer:
            made: Producer = self._made(Producer, **_DELIVERING)(self._bootstrap, acks=acks)
            return made

        await self.loose.write(make, acks, name, chance, self._until_s)

    async def _write_in_transactions(self, own: str, name: str, chance: Random) -> None:
        pace = Pace(chance, chance.choice(_MESSAGES_PER_S), self._until_s)
        target = Target(self._bootstrap, [INPUT], self._partitions)

        async def live(diary: Diary) -> None:
            await write_transactions(target, diary, pace, own, 0.2)

        await self._live(name, live, self._until_s)

    async def _process(self, own: str, name: str, chance: Random) -> None:
        step = Step(self._bootstrap, 1, "stage", [INPUT], OUTPUT, f"stage-{own}", 0.1, 2_000)

        async def live(diary: Diary) -> None:
            loop = asyncio.get_running_loop()
            await process(step, diary, chance, lambda: loop.time() > self._until_s)

        await self._live(name, live, self._until_s)

    async def _read(self, name: str, chance: Random) -> None:
        topics = [INPUT, OUTPUT]

        async def live(diary: Diary) -> None:
            await wander(self._bootstrap, topics, diary, chance, self._until_s)

        await self._live(name, live, self._until_s)

    async def _live(self, name: str, live: Live, until_s: float) -> None:
        await lives(name, self.history.append, live, until_s)

    # --- where they are -------------------------------------------------------------------------

    @contextmanager
    def at_home(self) -> Iterator[None]:
        """Let everything that is made meanwhile be on the machine whose loop makes it."""
        places = {
            "writers.Producer": self._made(Producer, **_DELIVERING),
            "processors.Producer": self._made(Producer, **_DELIVERING),
            "processors.Consumer": self._made(Consumer, **self._grouping),
            "readers.Consumer": self._reader,
            "readers.Admin": self._made(Admin),
            "readers.monotonic_ns": self._now_ns,
        }
        with ExitStack() as patches:
            for place, stand_in in places.items():
                patches.enter_context(patch(f"waystation.testing.{place}", stand_in))
            patches.enter_context(patch(f"{__name__}.Admin", self._made(Admin)))
            patches.enter_context(
                patch.object(workload, "Diary", partial(Diary, now_ns=self._now_ns))
            )
            yield

    def _made(self, kind: Callable[..., C], **options: Any) -> Callable[..., C]:
        def make(*args: Any, **given: Any) -> C:
            machine = self._here()
            return kind(
                *args,
                connect=connecting(self._world.network, machine.name),
                clock=machine.clock,
                chance=Random(self._world.chance.getrandbits(64)),
                **_REACHING,
                **options,
                **given,
            )

        return make

    def _reader(self, *args: Any, **given: Any) -> Consumer:
        near = {"client_rack": self._world.chance.choice(self._racks)} if self._racks else {}
        made: Consumer = self._made(Consumer, **near)(*args, **given)
        return made

    def _here(self) -> Node:
        loop = asyncio.get_running_loop()
        return next(one for one in self._machines.values() if one.loop is loop)

    def _now_ns(self) -> int:
        return int(self._world.schedule.now_s * 1e9)


async def _if_missing(making: Awaitable[Any]) -> None:
    try:
        await making
    except TopicExistsError:
        return
