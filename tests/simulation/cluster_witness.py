"""Sees everything that brokers and the store do, and knows what must never be.

Named after what they promise, the invariants are

- *one leader per epoch*: no two nodes lead a partition under one epoch, in the store or in fact;
- *committed is never lost*: what a high watermark has passed is in the log of every later leader,
  byte by byte, and nobody calls anything else committed at the same offset;
- *the high watermark never retreats* for those who read from one leader in one epoch;
- *committed is on every in-sync replica* that lives, and safe from a crash there;
- *offsets are dense*: each batch begins where the one before it ended;
- *one owner per partition* in each generation of a group;
- *nothing breaks*: no task, machine, timer or request of a broker ends by an error of ours.

What clients were promised (nothing acknowledged is lost, nothing aborted is read, nothing comes
twice or out of order) is judged from their history (``waystation.testing.checker``).
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from waystation.client.classic_member import ClassicMember
from waystation.cluster.image import ClusterImage
from waystation.cluster.parts import PartitionImage
from waystation.cluster.values import PartitionValue, decode
from waystation.coordination.store import Change
from waystation.model.ids import TopicId, TopicPartition
from waystation.partition.partition import Partition
from waystation.records.batch import records_of
from waystation.records.header import batches
from waystation.storage.log import Log
from waystation.telemetry import logs
from waystation.testing.simulated_node import Process
from waystation.testing.simulated_store import StoreServer
from waystation.testing.world import InvariantBrokenError, World

Place = tuple[TopicId, int]

_READ_BYTES = 1 << 30
# What an operator hears of when something of ours is broken, not the world.
_BREAKAGES = {
    "answer.failed",
    "cleaning.failed",
    "housekeeping.failed",
    "load.failed",
    "machine.broken",
    "request.failed",
    "task.crashed",
    "timer.failed",
}


class Committed:
    """What was ever called committed in one partition."""

    def __init__(self) -> None:
        self.end = 0
        self.ends: list[int] = []
        self.batches: list[bytes] = []

    def add(self, batch: bytes, base: int, end: int, place: TopicPartition) -> None:
        """Remember a batch, or compare it with the one that was there."""
        if base == self.end:
            self.ends.append(end)
            self.batches.append(batch)
            self.end = end
            return
        known = bisect_right(self.ends, base)
        was = self.batches[known] if known < len(self.batches) else b""
        if batch != was:
            _broken("committed is never lost", f"{place}@{base} is not what was committed there")


class Witness:
    """Looks at every checkpoint, and at every change of the store as it is made."""

    def __init__(self, world: World, server: StoreServer, processes: Mapping[int, Process]) -> None:
        self._world, self._server, self._processes = world, server, processes
        self.committed: dict[Place, Committed] = {}
        self.elections = self.commits = 0
        self._image = ClusterImage()
        self._stored: dict[str, PartitionValue] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._leading: dict[tuple[Place, int], int] = {}
        self._marks: dict[tuple[Place, int, int, int], int] = {}
        self._checked: dict[tuple[Place, int, int, int], int] = {}
        self._owners: dict[tuple[str, int, TopicPartition], str] = {}
        self._objection: InvariantBrokenError | None = None
        server.when_changed.append(self._changed)

    @property
    def image(self) -> ClusterImage:
        """What the store says now."""
        if self._image.revision != self._server.revision:
            self._image = ClusterImage.from_items(self._server.items, self._server.revision)
        return self._image

    # --- the store ------------------------------------------------------------------------------

    def _changed(self, change: Change) -> None:
        for key, item in change.puts.items():
            if key.startswith("partitions/"):
                self._state_changed(key, decode(PartitionValue, key, item.value))

    def _state_changed(self, key: str, after: PartitionValue) -> None:
        before = self._stored.get(key)
        self._stored[key] = after
        self._world.note(
            f"{key[-3:]}: {after.leader} leads in {after.leader_epoch}, "
            f"{after.in_sync} in sync, {after.eligible} eligible"
        )
        if after.leader is not None:
            known = self._leaders.setdefault((key, after.leader_epoch), after.leader)
            if known != after.leader:
                self.object_to("one leader per epoch", f"{key}: {known} and {after.leader}")
        if before is None:
            return
        if after.leader_epoch < before.leader_epoch:
            self.object_to("one leader per epoch", f"{key}: {before} becomes {after}")
        if after.leader_epoch > before.leader_epoch and after.leader is not None:
            self.elections += 1
            if after.leader not in (*before.in_sync, *before.eligible):
                self.object_to("committed is never lost", f"{key}: unclean, {before}, {after}")

    def object_to(self, name: str, why: str) -> None:
        """Raised at the next checkpoint: not in the turn of whoever did it."""
        self._objection = self._objection or InvariantBrokenError(name, why)

    # --- checkpoints ----------------------------------------------------------------------------

    def check(self) -> None:
        """Look at everybody."""
        if self._objection is not None:
            raise self._objection
        for number, process in self._processes.items():
            node = process.node
            if node is not None and node._broker is not None and process.host.alive:
                for partition in node.broker.replicas:
                    online = partition.log.directory.offline is None
                    if online and partition.leading and partition.mark >= 0:
                        self._check_leader(number, process, partition)
        self._check_in_sync()

    def _check_leader(self, number: int, process: Process, partition: Partition) -> None:
        place = (partition.topic_id, partition.name.partition)
        epoch = partition.leadership.epoch
        other = self._leading.setdefault((place, epoch), number)
        if other != number:
            _broken("one leader per epoch", f"{partition.name}: {other}, {number} in {epoch}")
        life = (place, epoch, number, process.host.life)
        mark = partition.mark
        if mark < self._marks.get(life, 0):
            _broken(
                "the high watermark never retreats",
                f"{partition.name} at {number}: {self._marks[life]}, then {mark}",
            )
        self._marks[life] = mark
        committed = self.committed.setdefault(place, Committed())
        if life not in self._checked:
            self._checked[life] = 0
            state = self._state(place)
            if state is not None and (state.leader, state.leader_epoch) == (number, epoch):
                self._check_new_leader(number, partition, committed)
        if mark > self._checked[life]:
            upto = self._checked[life]
            before = committed.end
            for base, end, batch in read_batches(partition.log, upto, mark):
                committed.add(batch, base, end, partition.name)
            self._checked[life] = mark
            self.commits += committed.end > before

    def _check_new_leader(self, number: int, partition: Partition, committed: Committed) -> None:
        """Whoever leads has everything that was ever committed, and the same."""
        log = partition.log
        if log.log_end < committed.end:
            _broken(
                "committed is never lost",
                f"{partition.name}: {number} leads in {partition.leadership.epoch} up to "
                f"{log.log_end}, {committed.end} were committed",
            )
        for base, end, batch in read_batches(log, 0, committed.end):
            committed.add(batch, base, end, partition.name)

    def _check_in_sync(self) -> None:
        for topic in self.image.topics.values():
            for number, state in enumerate(topic.partitions):
                committed = self.committed.get((topic.id, number))
                if committed is None:
                    continue
                for member in state.in_sync:
                    held = self.held(member, topic.name, number)
                    if held is not None and held.log.log_end < committed.end:
                        _broken(
                            "committed is on every in-sync replica",
                            f"{held.name} at {member} ends at {held.log.log_end}, "
                            f"{committed.end} are committed, {state}",
                        )

    def held(self, member: int, topic: str, number: int) -> Partition | None:
        """A replica of who lives, and is registered as who it is."""
        process = self._processes[member]
        node, registered = process.node, self.image.brokers.get(member)  # type: ignore[call-overload]
        if node is None or not process.serving or registered is None:
            return None
        if node.broker.broker_epoch != registered.epoch:
            return None
        held: Partition | None = node.broker.replicas.find(topic, number)
        return None if held is None or held.log.directory.offline is not None else held

    def epoch_of(self, topic: str, number: int, offset: int, value: bytes) -> int | None:
        """The epoch in which somebody wrote ``value`` at ``offset``; unknown if nobody has it."""
        for process in self._processes.values():
            node = process.node
            if node is None or node._broker is None or not process.host.alive:
                continue
            held = node.broker.replicas.find(topic, number)
            if held is None or held.log.directory.offline or held.log.log_end <= offset:
                continue
            found = held.log.read(offset, 1, held.log.log_end, True)  # type: ignore[arg-type]
            data = b"" if found.region is None else found.region.read()
            for at, header in batches(data):
                if any(one.offset == offset and one.value == value for one in records_of(data, at)):
                    return int(header.partition_leader_epoch)
        return None

    def _state(self, place: Place) -> PartitionImage | None:
        topic = self.image.topics_by_id.get(place[0])
        return None if topic is None else topic.partitions[place[1]]

    # --- the end --------------------------------------------------------------------------------

    def unsettled(self) -> str | None:
        """What is still to come before everybody has everything; nothing if nothing is."""
        if not all(process.serving for process in self._processes.values()):
            return "not everybody serves"
        if len(self.image.brokers) < len(self._processes):
            return f"only {list(self.image.brokers)} are registered"
        if self.image.controller is None:
            return "nobody is controller"
        if self.image.reassignments or self.image.drains:
            return f"{self.image.reassignments}, {self.image.drains} are under way"
        for topic in self.image.topics.values():
            for number, state in enumerate(topic.partitions):
                if state.leader is None or set(state.in_sync) != set(state.replicas):
                    return f"{topic.name}-{number} is {state}"
                ends = {m: self._end_of(m, topic.name, number) for m in state.replicas}
                if len(set(ends.values())) > 1:
                    return f"{topic.name}-{number} ends at {ends}"
        return None

    def all_in_sync(self, except_for: int) -> bool:
        """Whether everybody serves, and every partition is held by all of its replicas."""
        return all(one.serving and one.host.alive for one in self._processes.values()) and all(
            set(state.in_sync) == set(state.replicas)
            for topic in self.image.topics.values()
            for state in topic.partitions
            if except_for in state.replicas
        )

    def check_replicas_alike(self) -> None:
        """In the end all replicas hold the same."""
        for topic in self.image.topics.values():
            for number, state in enumerate(topic.partitions):
                logs = [self.held(member, topic.name, number) for member in state.replicas]
                contents = [
                    [batch for _, _, batch in read_batches(held.log, 0, held.log.log_end)]
                    for held in logs
                    if held is not None
                ]
                if any(one != contents[0] for one in contents):
                    _broken("committed is on every in-sync replica", f"{topic.name}-{number}")

    def _end_of(self, member: int, topic: str, number: int) -> int:
        held = self.held(member, topic, number)
        return -1 if held is None else held.log.log_end

    # --- what is overheard ----------------------------------------------------------------------

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear what brokers tell their operators, and who owns what in groups."""
        adopt = ClassicMember._adopt

        async def adopting(member: ClassicMember, assigned: tuple[TopicPartition, ...]) -> bool:
            self._adopted(member, assigned)
            return await adopt(member, assigned)

        with (
            patch.object(logs._output, "write", self._overhear),
            patch.object(ClassicMember, "_adopt", adopting),
        ):
            yield

    def _adopted(self, member: ClassicMember, assigned: tuple[TopicPartition, ...]) -> None:
        group, generation = member._around.coordinator.group_id, member._generation
        for where in assigned:
            owner = self._owners.setdefault((group, generation, where), member._member_id)
            if owner != member._member_id:
                self.object_to(
                    "one owner per partition",
                    f"{where} in generation {generation}: {owner} and {member._member_id}",
                )

    def _overhear(self, level: str, event: str, facts: dict[str, Any]) -> None:
        where = self._whose()
        if level in ("warning", "error", "info"):
            said = {name: fact for name, fact in facts.items() if name != "area"}
            self._world.note(f"{where}: {event} {said}")
        if event in _BREAKAGES:
            error = facts.get("exc_info")
            broken = InvariantBrokenError("nothing breaks", f"{where}: {event} {facts}")
            if isinstance(error, BaseException):
                broken.__cause__ = error
            self._objection = self._objection or broken

    def _whose(self) -> str:
        loop = asyncio._get_running_loop()
        names = (name for name, node in self._world.nodes.items() if node.loop is loop)
        return next(names, "nobody")


def read_batches(log: Log, start: int, upto: int) -> Iterator[tuple[int, int, bytes]]:
    """The batches of a log from ``start`` on: base, end and bytes; they leave no gap."""
    at = max(start, log.log_start)
    while at < upto:
        found = log.read(at, _READ_BYTES, log.log_end, True)  # type: ignore[arg-type]
        data = memoryview(b"" if found.region is None else found.region.read())
        if not data:
            _broken("offsets are dense", f"{log.name} holds nothing at {at}, ends {log.log_end}")
        for position, header in batches(data):
            if header.base_offset < at:
                continue
            if header.base_offset >= upto:
                return
            if header.base_offset != at:
                _broken("offsets are dense", f"{log.name}: {header.base_offset} follows {at}")
            at = header.next_offset
            batch = bytes(data[position : position + header.size_bytes])
            yield header.base_offset, at, batch


def _broken(name: str, why: str) -> None:
    raise InvariantBrokenError(name, why)
