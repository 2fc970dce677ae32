"""Two nodes that coordinate groups in turns, over a log that fails, is cut and changes hands.

The machine, its host, its timers and its record formats are the real ones; only the partition
under them is simulated, so that every way in which it can let them down can be tried by seed.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from tests.simulation.witness import Witness
from waystation.broker.group_records import GroupRecordReader, encode
from waystation.groups.commands import TopicSeen
from waystation.groups.machine import Groups
from waystation.groups.records import Record
from waystation.groups.settings import GroupSettings
from waystation.model.errors import (
    CoordinatorLoadingError,
    NotCoordinatorError,
    StorageError,
    WaystationError,
)
from waystation.model.ids import TopicId
from waystation.model.offsets import Offset
from waystation.runtime.chance import SeededChance
from waystation.runtime.clock import SteadyClock
from waystation.runtime.host import Host
from waystation.runtime.machine import OnCommit
from waystation.runtime.replay import replay, sliced
from waystation.runtime.timers import Timers
from waystation.testing.network import End
from waystation.testing.world import Node, World

Row = tuple[bytes, bytes | None]


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


class Shelf:
    """What the replicas hold: batches in order, of which a prefix is committed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.batches: list[list[Row]] = []
        self._ends = [0]
        self.committed_batches = 0
        self.epoch = 0
        self.sync_s = 0.05
        """How long a commit takes at most."""

    @property
    def end(self) -> Offset:
        return Offset(self._ends[-1])

    @property
    def committed(self) -> Offset:
        return Offset(self._ends[self.committed_batches])

    def add(self, batch: list[Row]) -> None:
        """Append what one decision led to."""
        self.batches.append(batch)
        self._ends.append(self._ends[-1] + len(batch))

    def new_epoch(self) -> int:
        """Another leader: of what is not committed it has all, some or nothing."""
        kept = self._world.chance.randint(self.committed_batches, len(self.batches))
        del self.batches[kept:], self._ends[kept + 1 :]
        self.committed_batches = kept
        self.epoch += 1
        if self._world.chance.random() < 0.3:
            self._compact()
        return self.epoch

    def _compact(self) -> None:
        """Keep the newest value of each key, where it was; no offset changes."""
        newest = {
            key: (at, n) for at, rows in enumerate(self.batches) for n, (key, _) in enumerate(rows)
        }
        self.batches = [
            [row for n, row in enumerate(rows) if newest[row[0]] == (at, n)]
            for at, rows in enumerate(self.batches)
        ]


class SimulatedLog:
    """The shelf as one leader writes to it."""

    def __init__(self, world: World, node: Node, shelf: Shelf, witness: Witness) -> None:
        self._world, self._node, self._shelf, self._witness = world, node, shelf, witness
        self._epoch = shelf.epoch
        self._end = shelf.end
        self._waiting: list[tuple[Offset, OnCommit]] = []
        self.failing = 0.0
        """The share of appends that fail."""

    def append(self, records: Sequence[Record]) -> Offset:
        self._check()
        if self._world.chance.random() < self.failing:
            self._world.note("an append fails")
            raise StorageError("the disk is full")
        self._shelf.add([encode(record) for record in records])
        self._witness.remembered(records)
        self._end = Offset(self._end + len(records))
        count = len(self._shelf.batches)
        if self._world.chance.random() < 0.2:
            self._commit(count)  # within the append, as with durability=memory
        else:
            delay_s = self._world.chance.uniform(0.000_5, self._shelf.sync_s)
            self._node.loop.call_later(delay_s, self._commit, count)
        return self._end

    @property
    def committed(self) -> Offset:
        return self._shelf.committed if self._epoch == self._shelf.epoch else Offset(-1)

    def when_committed(self, end: Offset, told: OnCommit) -> bool:
        if self.committed >= end:
            return True
        self._waiting.append((end, told))
        return False

    def lose(self, error: WaystationError) -> None:
        """Tell those who wait that this leader commits nothing more."""
        waiting, self._waiting = self._waiting, []
        for _, told in waiting:
            told(error)

    def _check(self) -> None:
        if self._epoch != self._shelf.epoch:
            raise NotCoordinatorError("another node leads")

    def _commit(self, count: int) -> None:
        shelf = self._shelf
        if self._epoch != shelf.epoch or count <= shelf.committed_batches:
            return
        shelf.committed_batches = count
        ready = [told for end, told in self._waiting if end <= shelf.committed]
        self._waiting = [one for one in self._waiting if one[0] > shelf.committed]
        for told in ready:
            told(None)


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
        machine = Groups(lambda: cluster.settings, cluster.topics, lambda: str(new_id()))
        rows = [(0, 0, *row, ()) for batch in cluster.shelf.batches for row in batch]
        records = GroupRecordReader().read_rows(rows)
        await replay(sliced(records), machine.apply, self.node.clock)
        cluster.witness.rebuilt(records)
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
        else:
            host = self.host
            event = getattr(host.machine, request.method)
            host.submit(lambda now: event(now, request.command, to), to)


class Cluster:
    """The nodes, the log they share, and what fate does to them."""

    def __init__(self, world: World, settings: GroupSettings, sizes: dict[str, int]) -> None:
        self.world, self.settings = world, settings
        self.topics = Topics(sizes)
        self.shelf = Shelf(world)
        self.witness = Witness(world, self.topics)
        self.append_failures = 0.0
        self._looked_at: tuple[Groups | None, int, int] = (None, 0, 0)
        self.calm = False
        """Once set, fate leaves the cluster alone."""
        self.coordinators = [Coordinator(self, world.node(name)) for name in ("north", "south")]
        self._leader = self.coordinators[0]
        self._leader.lead()
        world.always("no partition has two owners in one generation", self.witness.one_owner)
        world.always("no partition is assigned to two members", self.witness.disjoint)
        world.always("acknowledged offsets never go back", self._offsets_kept)

    @property
    def machine(self) -> Groups | None:
        """The one that answers now."""
        return None if self._leader.host is None else self._leader.host.machine

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
