"""One life of a whole cluster, decided by a seed: real nodes, real clients, and a bad world.

Everything that is ours is real: ``waystation.node.Node`` with all of its broker, and the clients.
What surrounds it is simulated: time, network, disks, threads and the coordination store.  First
comes a storm of faults, then calm in which everything must come right by itself; in the end all
replicas hold the same, and a last reader reads everything.
"""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from random import Random
from typing import NamedTuple
from unittest.mock import patch

from tests.simulation.cluster_clients import INPUT, OUTPUT, Clients
from tests.simulation.cluster_loose import LOOSE
from tests.simulation.cluster_witness import Witness
from waystation.client.admin import Admin
from waystation.model.errors import WaystationError
from waystation.node.settings import NodeSettings, load
from waystation.testing.checker import Verdict, check
from waystation.testing.simulated_node import PORT, Process
from waystation.testing.simulated_store import StoreServer
from waystation.testing.simulated_threads import simulated_threads
from waystation.testing.world import InvariantBrokenError, World

STORM_MS, PATIENCE_MS = 10_000, 120_000
_STEP_MS = 250
_CHECK_EVERY_MS = 25
_LEASE_MS = 1_000
# Journals of a few pages: a world has little memory, and they are full now and then.
_SIZES = {
    "journal.FILE_BYTES": 64 << 10,
    "journal._ROUND_BYTES_MAX": 32 << 10,
    "journal._ZEROS": bytes(32 << 10),
    "journal_replay.FILE_BYTES": 64 << 10,
    "reserve._SPARE_BYTES": 64 << 10,
}


class Outcome(NamedTuple):
    """What a life was like, for who wants to know whether anything happened at all."""

    seed: int
    events: int
    elections: int
    commits: int
    verdict: Verdict
    settled_ms: float


class Luck(NamedTuple):
    """What kind of world it is."""

    brokers: int
    replicas: int
    min_insync: int
    partitions: int
    loss: float
    straggle: float
    thread_s: float
    drift: float
    blows: tuple[str, ...]
    every_ms: float
    memory: bool = False
    """Whether records are committed before they are on disk; then one machine fails at a time."""
    server_side: bool = False
    """Whether groups share partitions out by the broker's protocol."""

    @classmethod
    def of(cls, chance: Random) -> "Luck":
        """Each world has some kinds of blows and not others, so that each kind has its day."""
        brokers = chance.choice([3, 3, 3, 4])
        memory = chance.random() < 0.2
        return cls(
            brokers=brokers,
            replicas=3,
            min_insync=2 if memory else chance.choice([1, 2, 2]),
            partitions=chance.choice([1, 2]),
            loss=chance.choice([0.0, 0.0, 0.001, 0.01]),
            straggle=chance.choice([0.0, 0.01, 0.05]),
            thread_s=chance.choice([0.0, 0.002, 0.02]),
            drift=chance.choice([0.0, 0.02, 0.1]),
            blows=tuple(chance.sample(list(BLOWS), chance.randint(1, 4))),
            every_ms=chance.choice([700, 1_500, 3_000]),
            memory=memory,
            server_side=chance.random() < 0.3,
        )


class More(NamedTuple):
    """What there is besides in some worlds: drawn apart, so that the others stay as they were."""

    loose: bool = False
    """Writers who ask for one replica's word, or for none."""
    racks: bool = False
    """Readers who read from the replica in their rack."""
    storeless: bool = False
    """Brokers that are cut off from the store alone."""

    @classmethod
    def of(cls, seed: int) -> "More":
        """In every third world."""
        if seed % 3 != 1:
            return cls()
        chance = Random(seed)
        return cls(*(chance.random() < 0.6 for _ in cls._fields))


class ClusterLife:
    """Make it, then ``run`` it once."""

    def __init__(self, seed: int, luck: Luck | None = None) -> None:
        self.seed = seed
        self.world = world = World(seed)
        self.more = More.of(seed) if luck is None else More()
        self.luck = luck = luck or Luck.of(world.chance)
        world.note(f"{luck} {self.more}")
        self.store = world.node("store")
        self.server = StoreServer(self.store.clock, history_max=50)
        self.processes: dict[int, Process] = {}
        for number in range(1, luck.brokers + 1):
            self._add_broker(number)
        self.witness = Witness(world, self.server, self.processes)
        bootstrap = ",".join(f"b{number}:{PORT}" for number in self.processes)
        self.clients = Clients(
            world,
            bootstrap,
            luck.partitions,
            STORM_MS / 1_000,
            server_side=luck.server_side,
            racks=tuple(f"b{number}" for number in self.processes) if self.more.racks else (),
        )
        self.calm = True

    def run(self) -> Outcome:
        """Live it; whatever is wrong raises."""
        with ExitStack() as stack:
            stack.enter_context(simulated_threads(self.world.schedule))
            stack.enter_context(self.clients.at_home())
            stack.enter_context(self.witness.listening())
            for place, size in _SIZES.items():
                stack.enter_context(patch(f"waystation.storage.{place}", size))
            return self._run()

    def _run(self) -> Outcome:
        world, luck = self.world, self.luck
        for process in self.processes.values():
            process.start()
        world.every(100, self._expire)
        world.every(_CHECK_EVERY_MS, self.witness.check)
        durability = "memory" if luck.memory else "disk"
        configs = {"min.insync.replicas": str(luck.min_insync), "durability": durability}
        operator = self.clients.machine("operator")
        topics = [INPUT, OUTPUT, *([LOOSE] if self.more.loose else [])]
        operator.spawn(self.clients.make_topics(luck.replicas, configs, topics))
        self._until(lambda: None if self.clients.has_topics else "topics are not made")
        chance = world.chance
        self.clients.enlist(
            writers=chance.randint(1, 2),
            transactional=chance.randint(0, 2),
            processors=chance.randint(0, 2),
            readers=1,
        )
        if self.more.loose:
            self.clients.loose.epoch_of = self._epoch_of
            self.clients.enlist_loose()
        self._unleash()
        world.run(STORM_MS)
        self._calm_down()
        settled_ms = self._settle()
        self.clients.retire()
        self._until(lambda: f"{self.clients.busy} still work" if self.clients.busy else None)
        operator.spawn(self.clients.read_everything())
        self._until(lambda: None if self.clients.finished else "nobody has read everything")
        self._settle()
        self.witness.check_replicas_alike()
        if self.more.loose:
            self.clients.loose.check(self.witness)
        verdict = check(self.clients.history)
        if verdict.findings:
            found = "\n".join(str(one) for one in verdict.findings[:10])
            self._fail("clients see what they were promised", found)
        if not verdict.complete:
            self._fail("clients see what they were promised", "not everything was read")
        witness = self.witness
        return Outcome(
            self.seed,
            world.schedule.steps,
            witness.elections,
            witness.commits,
            verdict,
            settled_ms,
        )

    def _epoch_of(self, partition: int, offset: int, value: str) -> int | None:
        return self.witness.epoch_of(LOOSE, partition, offset, value.encode())

    def _expire(self) -> None:
        """A store that is not there ends no leases."""
        if self.store.alive and not self.store.loop.paused:
            self.server.expire()

    # --- the world ------------------------------------------------------------------------------

    def _add_broker(self, number: int) -> None:
        chance = self.world.chance
        host = self.world.node(f"b{number}")
        rate = 1 + chance.uniform(-self.luck.drift, self.luck.drift)
        host.drift(chance.randint(-60_000, 60_000), rate)
        process = Process(host, self._settings(number), self.server, self._not_started(number))
        self._with_threads(number, process)
        self.processes[number] = process

    def _with_threads(self, number: int, process: Process) -> None:
        luck = Random(self.world.chance.getrandbits(64))
        process.host.loop.thread_delay_s = lambda: luck.uniform(0, self.luck.thread_s)

    def _settings(self, number: int) -> NodeSettings:
        options = {
            "node.id": str(number),
            "broker.machine": f"b{number}",
            "replica.lag.time.max.ms": "1000",
            "listen": f"b{number}:{PORT}",
            "insecure": "true",
            "http": "none",
            "log.dirs": "/data",
            "log.cleaner.enable": "false",
            "broker.session.timeout.ms": str(_LEASE_MS),
            "default.replication.factor": str(self.luck.replicas),
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "100",
            "group.consumer.session.timeout.ms": "2000",
            "group.consumer.heartbeat.interval.ms": "300",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": str(self.luck.replicas),
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": str(self.luck.replicas),
            "transaction.state.log.min.isr": str(self.luck.min_insync),
            "controlled.shutdown.timeout.ms": "1000",
            **({"broker.rack": f"b{number}"} if self.more.racks else {}),
            **OPTIONS,
        }
        return load([("simulation", options)])

    def _not_started(self, number: int) -> Callable[[WaystationError], None]:
        def told(error: WaystationError) -> None:
            """As a service would be: it is gone, and started again a little later."""
            self.world.note(f"b{number} does not start: {error}")
            self.processes[number].host.crash()
            self.world.after(500, lambda: self.restart(number))

        return told

    # --- fate -----------------------------------------------------------------------------------

    def _unleash(self) -> None:
        self.calm = False
        for faults in self.world.network.all_faults():
            faults.loss, faults.straggle = self.luck.loss, self.luck.straggle
        for name in self.luck.blows:
            blow = BLOWS[name]
            self.world.every(self.luck.every_ms * len(self.luck.blows), self._struck(blow))
        if self.more.storeless:
            self.world.every(self.luck.every_ms, self._struck(_lose_store))

    def _struck(self, blow: "Blow") -> Callable[[], None]:
        def strike() -> None:
            if not self.calm:
                blow(self)

        return strike

    def _calm_down(self) -> None:
        self.world.note("calm")
        self.calm = True
        self.world.network.heal()
        for node in self.world.nodes.values():
            node.go_on()
        if not self.store.alive:
            self.restart_store()
        for number in self.processes:
            self.restart(number)
        for name in self.clients.names:
            self.clients.revive(name)
        self.world.every(1_000, self._undrain)

    def _undrain(self) -> None:
        """A wish may get lost, or come late: what is still drained in calm is not meant."""
        for number in self.witness.image.drains:
            self.operate(lambda admin, number=number: admin.undrain_broker(number), "undrain")  # type: ignore[misc]

    def operate(self, wish: Callable[[Admin], Awaitable[object]], what: str) -> None:
        """Have an operator ask for something."""
        self.clients.machine("operator").spawn(self.clients.operate(wish, what))

    def restart(self, number: int) -> None:
        """Give a broker that is off its power back, and start it."""
        process = self.processes[number]
        if not process.host.alive:
            process.host.restart()
            self._with_threads(number, process)
            process.start()

    def restart_store(self) -> None:
        """Nothing that was said to it is forgotten."""
        if not self.store.alive:
            self.store.restart()
            self.server.restart()

    def may_crash(self, number: int) -> bool:
        """Whether no promise is broken if this machine loses its memory: others have it all."""
        return not self.luck.memory or self.witness.all_in_sync(except_for=number)

    def some_broker(self) -> int:
        """Any of them."""
        return self.world.chance.choice(list(self.processes))

    def after(self, low_ms: float, high_ms: float, run: Callable[[], object]) -> None:
        """Some time later, even if it is calm by then."""
        self.world.after(self.world.chance.uniform(low_ms, high_ms), run)

    # --- the end --------------------------------------------------------------------------------

    def _settle(self) -> float:
        began_ms = self.world.now_ms
        self._until(self.witness.unsettled)
        return self.world.now_ms - began_ms

    def _until(self, missing: Callable[[], str | None]) -> None:
        deadline_ms = self.world.now_ms + PATIENCE_MS
        while (why := missing()) is not None:
            if self.world.now_ms > deadline_ms:
                self._fail("in calm everything comes right", why)
            self.world.run(_STEP_MS)

    def _fail(self, name: str, why: str) -> None:
        error = InvariantBrokenError(name, why)
        error.add_note(self.world.story())
        raise error


Blow = Callable[[ClusterLife], None]
OPTIONS: dict[str, str] = {}


# --- what can befall a cluster --------------------------------------------------------------------


def _crash(life: ClusterLife) -> None:
    """A broker loses power, and what it had not synced."""
    number = life.some_broker()
    if life.may_crash(number):
        life.processes[number].host.crash()
        life.after(50, 4_000, lambda: life.restart(number))


def _fail_disk(life: ClusterLife) -> None:
    """A sync fails: the directory is offline until somebody starts the broker anew."""
    number = life.some_broker()
    host = life.processes[number].host
    if life.may_crash(number) and host.alive:
        life.world.note(f"b{number}: its next sync fails")
        host.disk.fail_sync()

        def replace() -> None:
            host.crash()
            life.restart(number)

        life.after(500, 4_000, replace)


def _crash_all(life: ClusterLife) -> None:
    """The power of the whole room is gone."""
    if life.luck.memory:
        return
    for number, process in life.processes.items():
        process.host.crash()
        life.after(50, 3_000, lambda number=number: life.restart(number))  # type: ignore[misc]


def _stop(life: ClusterLife) -> None:
    """An operator restarts a broker."""
    number = life.some_broker()
    process = life.processes[number]
    if process.serving and process.host.alive:
        life.world.note(f"b{number} is stopped")
        process.stop()

        def start_again() -> None:
            if process.host.alive:
                process.host.crash()
            life.restart(number)

        life.after(3_000, 6_000, start_again)


def _pause(life: ClusterLife) -> None:
    """A broker stands still for a while, and does not know it."""
    host = life.processes[life.some_broker()].host
    host.pause()
    life.after(50, 3_500, host.go_on)


def _split(life: ClusterLife) -> None:
    """The network falls apart."""
    chance, names = life.world.chance, list(life.world.nodes)
    sides: list[list[str]] = [[], []]
    for name in names:
        sides[chance.random() < 0.4].append(name)
    life.world.note(f"split: {sides[1]} are apart")
    life.world.network.partition(*sides)
    life.after(100, 4_000, lambda: _join(life))


def _join(life: ClusterLife) -> None:
    life.world.note("joined again")
    for faults in life.world.network.all_faults():
        faults.cut = False


def _cut_link(life: ClusterLife) -> None:
    """Nothing gets through between two nodes, perhaps in one direction only."""
    chance, names = life.world.chance, list(life.world.nodes)
    one, other = chance.sample(names, 2)
    links = [life.world.network.faults(one, other)]
    if chance.random() < 0.5:
        links.append(life.world.network.faults(other, one))
    for link in links:
        link.cut = True
    life.world.note(f"cut: {one} and {other}, {len(links)} ways")

    def mend() -> None:
        for link in links:
            link.cut = False

    life.after(100, 4_000, mend)


def _lose_store(life: ClusterLife) -> None:
    """A broker does not reach the store any more; its clients and other brokers reach it."""
    name = f"b{life.some_broker()}"
    links = [life.world.network.faults(name, "store"), life.world.network.faults("store", name)]
    for link in links:
        link.cut = True
    life.world.note(f"{name} is cut off from the store")

    def mend() -> None:
        for link in links:
            link.cut = False

    life.after(500, 4_000, mend)


def _slow_link(life: ClusterLife) -> None:
    """Between two nodes everything takes long."""
    chance, names = life.world.chance, list(life.world.nodes)
    one, other = chance.sample(names, 2)
    link = life.world.network.faults(one, other)
    link.delay_ms = (50.0, 700.0)

    def mend() -> None:
        link.delay_ms = (0.2, 5.0)

    life.after(100, 4_000, mend)


def _store_gone(life: ClusterLife) -> None:
    """The store is started again."""
    if life.store.alive:
        life.store.crash()
        life.after(100, 3_000, life.restart_store)


def _store_slow(life: ClusterLife) -> None:
    """The store stands still for a while."""
    life.store.pause()
    life.after(100, 2_500, life.store.go_on)


def _store_forgets(life: ClusterLife) -> None:
    """The store drops its history: who is behind must list again."""
    life.server.compact()


def _kill_client(life: ClusterLife) -> None:
    """A client dies, and is started again."""
    name = life.world.chance.choice(life.clients.names)
    life.clients.machine(name).crash()
    life.after(100, 2_000, lambda: life.clients.revive(name))


def _reassign(life: ClusterLife) -> None:
    """An operator wants a partition elsewhere, or its leader, or fewer replicas of it."""
    chance, brokers = life.world.chance, list(life.processes)
    topic = chance.choice([INPUT, OUTPUT, "__consumer_offsets", "__transaction_state"])
    internal = topic.startswith("__")
    where = (topic, 0 if internal else chance.randrange(life.luck.partitions))
    wanted = chance.sample(brokers, life.luck.replicas)
    life.operate(lambda admin: admin.alter_reassignments({where: wanted}), f"move {where}")


def _elect(life: ClusterLife) -> None:
    """An operator wants preferred leaders back."""
    life.operate(lambda admin: admin.elect_leaders(), "elect")


def _drain(life: ClusterLife) -> None:
    """An operator wants a broker to hold nothing, and changes its mind."""
    number = life.some_broker()
    life.operate(lambda admin: admin.drain_broker(number), f"drain {number}")
    back = lambda: life.operate(lambda admin: admin.undrain_broker(number), f"undrain {number}")  # noqa: E731
    life.after(500, 4_000, back)


BLOWS: dict[str, Blow] = {
    "crash": _crash,
    "crash all": _crash_all,
    "fail disk": _fail_disk,
    "stop": _stop,
    "pause": _pause,
    "split": _split,
    "cut link": _cut_link,
    "slow link": _slow_link,
    "store gone": _store_gone,
    "store slow": _store_slow,
    "store forgets": _store_forgets,
    "kill client": _kill_client,
    "reassign": _reassign,
    "elect": _elect,
    "drain": _drain,
}
