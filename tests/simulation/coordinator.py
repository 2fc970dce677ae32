"""Two nodes that coordinate groups in turns, over a log that fails, is cut and changes hands.

The machine, its host, its timers and its record formats are the real ones; only the partition
under them is simulated, so that every way in which it can let them down can be tried by seed.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from uuid import UUID

from tests.simulation.ledger import Ledger
from tests.simulation.shelf import Shelf, ShelfProducers, SimulatedLog
from tests.simulation.witness import Witness
from waystation.broker.group_records import GroupRecordReader
from waystation.groups.commands import TopicSeen, TransactionalCommit
from waystation.groups.machine import Groups
from waystation.groups.records import Record
from waystation.groups.settings import GroupSettings
from waystation.model.errors import (
    CoordinatorLoadingError,
    InvalidTxnStateError,
    NotCoordinatorError,
    WaystationError,
)
from waystation.model.ids import TopicId
from waystation.runtime.chance import SeededChance
from waystation.runtime.clock import SteadyClock
from waystation.runtime.host import Host
from waystation.runtime.replay import replay
from waystation.runtime.timers import Timers
from waystation.testing.network import End
from waystation.testing.world import Node, World


class Request(NamedTuple):
    """What a member sends; ``method`` is the machine's own name for it."""

    number: int
    method: str
    command: Any


class Topics:
    """The topics of the cluster; some grow."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.version = 1
        self._topics = {
            name: TopicSeen(name, TopicId(UUID(int=number)), size)
            for number, (name, size) in enumerate(sizes.items(), 1)
        }

    def named(self, name: str) -> TopicSeen | None:
        return self._topics.get(name)

    def of_id(self, topic_id: TopicId) -> TopicSeen | None:
        return next((one for one in self._topics.values() if one.id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self._topics)

    def wait_for(self, group_id: str) -> bool:
        return False

    def grow(self, name: str) -> None:
        topic = self._topics[name]
        self._topics[name] = topic._replace(partitions=topic.partitions + 1)
        self.version += 1


class Coordinator:
    """One node's service: loads when it leads, answers while it does."""

    def __init__(self, cluster: "Cluster", node: Node) -> None:
        self.cluster, self.node = cluster, node
        self.host: Host[Record] | None = None
        self.log: SimulatedLog | None = None
        self._epoch = -1
        node.when_crashed.append(self._crashed)
        cluster.world.network.listen(node.name, self._accept)

    def lead(self) -> None:
        """Load, and serve from then on."""
        self._epoch = self.cluster.shelf.new_epoch()
        self.cluster.world.note(f"{self.node.name} leads in epoch {self._epoch}")
        self.node.spawn(self._load(self._epoch))

    def give_up(self) -> None:
        """Another node leads."""
        error = NotCoordinatorError("another node leads")
        host, log, self.host, self.log = self.host, self.log, None, None
        self._epoch = -1
        if log is not None and self.cluster.world.chance.random() < 0.5:
            log.lose(error)
        if host is not None:
            host.resign(error)

    def topics_changed(self) -> None:
        if self.host is not None:
            self.host.submit(self.host.machine.topics_changed)

    async def _load(self, epoch: int) -> None:
        cluster, world = self.cluster, self.cluster.world
        await asyncio.sleep(world.chance.uniform(0, 0.3))
        if epoch != self._epoch:
            return
        new_id = SeededChance(world.chance.randrange(1 << 32)).new_id
        machine = Groups(
            lambda: cluster.settings,
            cluster.topics,
            lambda: str(new_id()),
            ShelfProducers(cluster.shelf),
        )
        slices = list(cluster.shelf.records(GroupRecordReader().read_rows))
        await replay(slices, machine.apply, self.node.clock)
        cluster.witness.rebuilt([record for some in slices for record in some])
        log = SimulatedLog(world, self.node, cluster.shelf, cluster.witness)
        log.failing = cluster.append_failures
        clock = SteadyClock(self.node.clock)
        timers = Timers(clock, self.node.loop)
        host = Host(machine, log, clock=clock, timers=timers, failed=self._failed)
        self.host, self.log = host, log
        host.start()

    def _failed(self, error: WaystationError) -> None:
        self.cluster.world.note(f"the machine of {self.node.name} ended: {error}")
        self.host = self.log = None
        if self._epoch >= 0:
            self.lead()

    def _crashed(self) -> None:
        self.host = self.log = None
        self._epoch = -1
        self.cluster.witness.crashed(self.node.name)

    # --- requests -----------------------------------------------------------------------------

    def _accept(self, end: End) -> None:
        end.on_message = lambda request: self._serve(end, request)
        end.on_close = lambda: self.cluster.witness.hung_up(end)

    def _serve(self, end: End, request: Request) -> None:
        to = self.cluster.witness.asked(self.node.name, end, request)
        if self._epoch < 0:
            to(NotCoordinatorError("another node leads"))
        elif self.host is None:
            to(CoordinatorLoadingError("not loaded yet"))
        elif isinstance(request.command, TransactionalCommit):
            self.node.spawn(self._commit(self.host, request.command, to))
        else:
            host = self.host
            event = getattr(host.machine, request.method)
            host.submit(lambda now: event(now, request.command, to), to)

    async def _commit(
        self, host: Host[Record], command: TransactionalCommit, to: Callable[[object], None]
    ) -> None:
        """Ask whether there is the transaction, if it is not open here; the answer takes time."""
        cluster, producer = self.cluster, (command.producer_id, command.producer_epoch)
        if not cluster.shelf.producers.in_transaction(*producer):
            command = command._replace(inquiry=host.machine.inquire(command.producer_id))
            is_there = cluster.ledger.admits(*producer)
            await asyncio.sleep(cluster.world.chance.choice([0, 0.005, 0.2]))
            if not is_there:
                to(InvalidTxnStateError("there is no such transaction"))
                return
        host.submit(lambda now: host.machine.commit_in_transaction(now, command, to), to)


class Cluster:
    """The nodes, the log they share, and what fate does to them."""

    def __init__(self, world: World, settings: GroupSettings, sizes: dict[str, int]) -> None:
        self.world, self.settings = world, settings
        self.topics = Topics(sizes)
        self.shelf = Shelf(world)
        self.witness = Witness(world, self.topics)
        self.ledger = Ledger(self)
        self.append_failures = 0.0
        self.shared_out: dict[tuple[str, int], int] = {}
        """As of which version of the topics a classic leader has shared out a generation."""
        self._looked_at: tuple[Groups | None, int, int] = (None, 0, 0)
        self.calm = False
        """Once set, fate leaves the cluster alone."""
        self.coordinators = [Coordinator(self, world.node(name)) for name in ("north", "south")]
        self._leader = self.coordinators[0]
        self._leader.lead()
        world.always("no partition has two owners in one generation", self.witness.one_owner)
        world.always("no partition is assigned to two members", self.witness.disjoint)
        world.always("acknowledged offsets never go back", self._offsets_kept)
        world.always("nobody objects", self.witness.no_objections)

    @property
    def host(self) -> Host[Record] | None:
        """The one that answers now."""
        return self._leader.host

    @property
    def machine(self) -> Groups | None:
        """What it runs."""
        return None if self.host is None else self.host.machine

    def crash_leader(self) -> None:
        """Kill the node that leads; itself or the other leads later."""
        leader = self._leader
        if self.calm or not leader.node.alive:
            return
        leader.node.crash()
        self.world.after(self.world.chance.uniform(50, 1_500), lambda: self._revive(leader))

    def hand_over(self) -> None:
        """Let the other node lead."""
        other = self._other()
        if not self.calm and other.node.alive and self._leader.node.alive:
            self._lead(other)

    def fail_appends(self) -> None:
        """Let the next appends fail, for a while."""
        if not self.calm and self._leader.log is not None:
            log = self._leader.log
            log.failing = 0.5
            self.world.after(300, lambda: setattr(log, "failing", 0.0))

    def grow(self, topic: str) -> None:
        """Add a partition."""
        if not self.calm:
            self.topics.grow(topic)
            for coordinator in self.coordinators:
                coordinator.topics_changed()

    def resign_all(self) -> None:
        """Shut down: everyone who waits must be told."""
        for coordinator in self.coordinators:
            coordinator.give_up()

    def _revive(self, crashed: Coordinator) -> None:
        crashed.node.restart()
        self._lead(self.world.chance.choice([crashed, self._other()]))

    def _lead(self, coordinator: Coordinator) -> None:
        for one in self.coordinators:
            if one.node.alive:
                one.give_up()
        self._leader = coordinator
        coordinator.lead()

    def _other(self) -> Coordinator:
        north, south = self.coordinators
        return south if self._leader is north else north

    def _offsets_kept(self) -> None:
        machine = self.machine
        state = (machine, len(self.shelf.batches), self.witness.told)
        if machine is not None and state != self._looked_at:
            self._looked_at = state  # nothing else changes what is compared
            self.witness.offsets_kept(machine.committed_offsets())
