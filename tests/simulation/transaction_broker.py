"""A broker that coordinates transactions, over logs that lose what was not synced.

The machines of transactions and groups, their hosts and timers, the records of the first and the
admission of producers are the real ones.  Partitions are models (``data_log.py``), and what a
broker does between them, markers above all, is done late, twice and with deaths in between.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, NamedTuple

from tests.simulation.data_log import NO_SEQUENCE, Batch, DataLog, fenced
from waystation.broker.admission import Admission, Hear, Verdict
from waystation.broker.transaction_records import encode, read
from waystation.groups import records as group_records
from waystation.groups.commands import FetchOffsets, OffsetToCommit, TransactionalCommit
from waystation.groups.machine import Groups
from waystation.groups.settings import GroupSettings
from waystation.model.errors import (
    CoordinatorLoadingError,
    InvalidProducerEpochError,
    StorageError,
    TransactionCoordinatorFencedError,
    WaystationError,
)
from waystation.model.ids import ProducerEpoch, ProducerId, TopicId, TopicPartition
from waystation.model.machines import InTransaction
from waystation.model.offsets import Offset
from waystation.records.control import Marker
from waystation.runtime.clock import SteadyClock
from waystation.runtime.host import Host
from waystation.runtime.machine import OnCommit
from waystation.runtime.timers import Timers
from waystation.testing.network import End as Line
from waystation.testing.world import World
from waystation.transactions.commands import Add, Added, End, Init, MarkersDue
from waystation.transactions.machine import Transactions
from waystation.transactions.records import Record
from waystation.transactions.settings import TransactionSettings

IN, OUT = "in", "out"
PARTITIONS = 2
OFFSETS = TopicPartition("__consumer_offsets", 0)
_FIRST_PRODUCER = 1_000


class Request(NamedTuple):
    """What a client sends; ``method`` is the broker's own name for it."""

    number: int
    method: str
    arguments: tuple[Any, ...]


class States:
    """``__transaction_state`` on its disks: batches in order, of which a prefix is committed."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.batches: list[list[tuple[bytes, bytes | None]]] = []
        self.committed = 0
        self.epoch = 0

    def new_epoch(self) -> int:
        """A new leader: of what is not committed it has all, some or nothing."""
        del self.batches[self._chance.randint(self.committed, len(self.batches)) :]
        self.committed = len(self.batches)
        self.epoch += 1
        if self._chance.random() < 0.3:
            self._compact()
        return self.epoch

    def _compact(self) -> None:
        """Keep the newest value of each key."""
        newest = {
            row[0]: (at, n) for at, rows in enumerate(self.batches) for n, row in enumerate(rows)
        }
        self.batches = [
            [row for n, row in enumerate(rows) if newest[row[0]] == (at, n)]
            for at, rows in enumerate(self.batches)
        ]


class NoTopics:
    """What the groups see of the cluster, who need no topics to keep offsets."""

    version = 1

    def named(self, name: str) -> None:
        return None

    def of_id(self, topic_id: TopicId) -> None:
        return None

    def names(self) -> Iterable[str]:
        return ()

    def wait_for(self, group_id: str) -> bool:
        return False


class Store:
    """What the disks hold; a crash takes some of what was not synced."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.states = States(world.chance)
        self.logs = {
            TopicPartition(one, n): DataLog() for one in (IN, OUT) for n in range(PARTITIONS)
        }
        self.logs[OFFSETS] = DataLog()
        self.producers = _FIRST_PRODUCER
        self.sync_s = 0.02
        """How long a sync takes at most."""

    def crash(self) -> None:
        """The power fails."""
        for log in self.logs.values():
            log.crash(self.world.chance)

    def new_producer(self) -> ProducerId:
        """An id that nobody has: they come from another store, which loses nothing."""
        self.producers += 1
        return ProducerId(self.producers)


class StateLog:
    """``__transaction_state`` as one leader writes to it; an offset is a number of batches."""

    def __init__(self, broker: "Broker") -> None:
        self._broker, self._states = broker, broker.store.states
        self._epoch = self._states.epoch
        self._waiting: list[tuple[Offset, OnCommit]] = []

    def append(self, records: Sequence[Record]) -> Offset:
        chance = self._broker.world.chance
        if not self._broker.calm and chance.random() < self._broker.append_failures:
            raise StorageError("the disk is full")
        self._states.batches.append([encode(record) for record in records])
        end = Offset(len(self._states.batches))
        delay_s = chance.uniform(0.000_5, self._broker.store.sync_s)
        self._broker.node.loop.call_later(delay_s, self._commit, end)
        return end

    @property
    def committed(self) -> Offset:
        return Offset(self._states.committed)

    def when_committed(self, end: Offset, told: OnCommit) -> bool:
        if self.committed >= end:
            return True
        self._waiting.append((end, told))
        return False

    def _commit(self, end: Offset) -> None:
        if self._epoch != self._states.epoch or end <= self.committed:
            return
        self._states.committed = end
        ready = [told for upto, told in self._waiting if upto <= end]
        self._waiting = [one for one in self._waiting if one[0] > end]
        for told in ready:
            told(None)


class OffsetsLog:
    """``__consumer_offsets`` as its leader writes to it, and what it knows of producers."""

    def __init__(self, broker: "Broker") -> None:
        self._broker, self._log = broker, broker.store.logs[OFFSETS]

    def append(self, records: Sequence[group_records.Record]) -> Offset:
        first = records[0]
        if isinstance(first, Marker):
            self._log.append_marker(first)
        else:
            assert isinstance(first, InTransaction), f"{first} is in no transaction"
            producer = first.producer_id, first.producer_epoch
            self._log.append(*producer, NO_SEQUENCE, records, may_begin=True)
        self._broker.sync_soon(OFFSETS)
        return Offset(self._log.end)

    @property
    def committed(self) -> Offset:
        return Offset(self._log.synced)

    def when_committed(self, end: Offset, told: OnCommit) -> bool:
        if self._log.synced >= end:
            return True
        self._log.when_synced(end, lambda: told(None))
        return False

    def refusal(self, producer_id: ProducerId, epoch: ProducerEpoch) -> WaystationError | None:
        known = self._log.epoch_of(producer_id)
        return fenced(producer_id, known, epoch) if epoch < known else None

    def refusal_of_marker(self, marker: Marker) -> WaystationError | None:
        return self._log.refusal_of(marker)


class Broker:
    """The node, and what runs on it until it loses power."""

    def __init__(self, world: World, settings: TransactionSettings) -> None:
        self.world, self.store = world, Store(world)
        self.node = world.node("broker")
        self.calm = False
        """Once set, fate leaves the broker alone."""
        self.input_is_over = False
        self.dawdling = self.append_failures = 0.0
        """The share of requests that are served late, or twice; of appends that fail."""
        self.marker_s = 0.05
        """How long markers take at most, most of the time."""
        self._settings = settings
        self._start()

    def crash(self) -> None:
        """Lose power for a while."""
        if self.node.alive and not self.calm:
            self.node.crash()
            self.world.after(self.world.chance.uniform(20, 1_000), self._restart)

    def sync_soon(self, where: TopicPartition) -> None:
        """What was appended so far is safe a little later."""
        log = self.store.logs[where]
        delay_s = self.world.chance.uniform(0.000_5, self.store.sync_s)
        self.node.loop.call_later(delay_s, log.sync, log.end)

    # --- lives --------------------------------------------------------------------------------

    def _restart(self) -> None:
        self.store.crash()
        self.node.restart()
        self._start()

    def _start(self) -> None:
        self._admission = Admission()
        self._host: Host[Record] | None = None
        self._groups: Host[group_records.Record] | None = None
        self.world.network.listen(self.node.name, self._accept)
        self._load_groups()
        self._load()

    def _load(self) -> None:
        """Become coordinator; also after a machine has failed."""
        self._host = None
        epoch = self.store.states.new_epoch()
        delay_s = self.world.chance.uniform(0, 0.2)
        self.node.loop.call_later(delay_s, self._begin, epoch)

    def _begin(self, epoch: int) -> None:
        clerk = _Clerk(self)
        machine = Transactions(lambda: self._settings, epoch, clerk.hear)
        for batch in self.store.states.batches:
            for row in batch:
                record = read(*row)
                assert record is not None, f"{row} is of no known kind"
                machine.apply(record)
        clerk.host = self._host = self._hosted(machine, StateLog(self), lambda _: self._load())
        self._host.start()

    def _load_groups(self) -> None:
        log = OffsetsLog(self)
        machine = Groups(GroupSettings, NoTopics(), lambda: "nobody", log)
        for entry in self.store.logs[OFFSETS].entries:
            for record in entry.rows if isinstance(entry, Batch) else (entry.marker,):
                machine.apply(record)
        self._groups = self._hosted(machine, log, lambda _: self._load_groups())
        self._groups.start()

    def _hosted(
        self, machine: Any, log: Any, failed: Callable[[WaystationError], None]
    ) -> Host[Any]:
        clock = SteadyClock(self.node.clock)
        timers = Timers(clock, self.node.loop)
        return Host(machine, log, clock=clock, timers=timers, failed=failed)

    # --- requests -----------------------------------------------------------------------------

    def _accept(self, line: Line) -> None:
        line.on_message = partial(self._arrived, line)

    def _arrived(self, line: Line, request: Request) -> None:
        self.node.spawn(self._serve(line, request, self._late_s(request)))
        if late_s := self._late_s(request):
            self.node.spawn(self._serve(line, request, late_s))

    def _late_s(self, request: Request) -> float:
        """How long the request lies about, while others pass it; mostly not at all.

        Only with KIP-890 may that be: in the classic flow, a request that comes late or twice can
        end, or become part of, a later transaction than the one it was meant for.
        """
        chance = self.world.chance
        safe = request.method in ("fetch", "offset") or "implicit" in request.arguments[0]
        dawdles = safe and not self.calm and chance.random() < self.dawdling
        return chance.uniform(0, 2.0) if dawdles else 0.0

    async def _serve(self, line: Line, request: Request, delay_s: float) -> None:
        if delay_s:
            await asyncio.sleep(delay_s)
        try:
            answer = await getattr(self, request.method)(*request.arguments)
        except WaystationError as error:
            answer = error
        line.send((request.number, answer))

    async def init(self, transactional_id: str, timeout_ms: int) -> Any:
        """InitProducerId."""
        host = self._coordinator()
        fresh = self.store.new_producer()
        wanted = Init(transactional_id, timeout_ms, fresh=fresh)
        return await host.ask(lambda now, to: host.machine.init(now, wanted, to))

    async def add(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        where: TopicPartition,
    ) -> None:
        """AddPartitionsToTxn, and AddOffsetsToTxn."""
        host = self._coordinator()
        wanted = Add(transactional_id, producer_id, epoch, frozenset([where]))
        added: Added = await host.ask(lambda now, to: host.machine.add(now, wanted, to))
        _raise(added.errors[where])

    async def end(
        self, transactional_id: str, producer_id: int, epoch: int, commit: bool, bumps: bool
    ) -> Any:
        """EndTxn."""
        host = self._coordinator()
        producer = ProducerId(producer_id), ProducerEpoch(epoch)
        wanted = End(transactional_id, *producer, commit, bumps, self.store.new_producer())
        return await host.ask(lambda now, to: host.machine.end(now, wanted, to))

    async def produce(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        where: TopicPartition,
        sequence: int,
        rows: Sequence[str],
        implicit: bool,
    ) -> int:
        """Produce; the offset of the first row."""
        log = self.store.logs[where]
        written: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def go(verdict: Verdict) -> None:
            try:
                _raise(verdict.get(where))
                asked = where in verdict
                offset = log.append(producer_id, epoch, sequence, rows, may_begin=asked)
            except WaystationError as error:
                written.set_exception(error)
            else:
                self.sync_soon(where)
                log.when_synced(log.end, lambda: written.set_result(offset))

        self._admission.enter(
            producer_id,
            lambda: [] if log.in_transaction(producer_id, epoch) else [where],
            partial(self._ask, transactional_id, producer_id, epoch, implicit),
            go,
        )
        return await written

    async def commit_offsets(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        group: str,
        offsets: Iterable[tuple[TopicPartition, int]],
        implicit: bool,
    ) -> None:
        """TxnOffsetCommit."""
        host = self._group_host()
        inquiry = None
        if not self.store.logs[OFFSETS].in_transaction(producer_id, epoch):
            inquiry = host.machine.inquire(producer_id)
            await self._admit(transactional_id, producer_id, epoch, implicit)
        listed = tuple(OffsetToCommit(*where, offset, -1, "") for where, offset in offsets)
        wanted = TransactionalCommit(group, -1, "", None, listed, producer_id, epoch, inquiry)
        done = await host.ask(lambda now, to: host.machine.commit_in_transaction(now, wanted, to))
        for error in done.errors:
            _raise(error)

    async def offset(self, group: str, where: TopicPartition) -> int:
        """OffsetFetch, of what no open transaction can change."""
        host = self._group_host()
        wanted = FetchOffsets(group, ((where.topic, (where.partition,)),), require_stable=True)
        found = await host.ask(lambda now, to: host.machine.fetch_offsets(now, wanted, to))
        (one,) = found.offsets
        _raise(one.error)
        return int(max(one.offset, 0))

    async def fetch(self, where: TopicPartition, start: int) -> tuple[list[tuple[int, str]], int]:
        """Fetch, of what is committed."""
        return self.store.logs[where].visible(start)

    # --- between the machines -----------------------------------------------------------------

    def _coordinator(self) -> Host[Record]:
        if self._host is None:
            raise CoordinatorLoadingError("not loaded yet")
        return self._host

    def _group_host(self) -> Host[group_records.Record]:
        if self._groups is None:
            raise CoordinatorLoadingError("not loaded yet")
        return self._groups

    def _ask(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        implicit: bool,
        wanted: Iterable[TopicPartition],
        hear: Hear,
    ) -> None:
        add = Add(
            transactional_id,
            producer_id,
            epoch,
            frozenset(wanted),
            verify_only=not implicit,
            implicit=implicit,
        )

        def to(answer: object) -> None:
            failed = isinstance(answer, WaystationError)
            hear(dict.fromkeys(add.partitions, answer) if failed else answer.errors)  # type: ignore

        host = self._host
        if host is None:
            to(CoordinatorLoadingError("not loaded yet"))
        else:
            host.submit(lambda now: host.machine.add(now, add, to), to)

    async def _admit(
        self, transactional_id: str, producer_id: ProducerId, epoch: ProducerEpoch, implicit: bool
    ) -> None:
        heard: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._ask(transactional_id, producer_id, epoch, implicit, [OFFSETS], heard.set_result)
        _raise((await heard)[OFFSETS])

    async def write_marker(self, due: MarkersDue, where: TopicPartition) -> None:
        """Let a partition know how a transaction ended, sooner or later."""
        chance = self.world.chance
        slow = not self.calm and chance.random() < 0.05
        await asyncio.sleep(chance.uniform(0, 1.0 if slow else self.marker_s))
        marker = Marker(due.producer_id, due.epoch, due.coordinator_epoch, due.commit)
        with suppress(InvalidProducerEpochError, TransactionCoordinatorFencedError):
            # What is refused was ended by a newer one.
            await (self._end_offsets(marker) if where == OFFSETS else self._end_rows(marker, where))

    async def _end_offsets(self, marker: Marker) -> None:
        host = self._group_host()
        await host.ask(lambda now, to: host.machine.end_transaction(now, marker, to))

    async def _end_rows(self, marker: Marker, where: TopicPartition) -> None:
        log = self.store.logs[where]
        end = log.append_marker(marker)
        self.sync_soon(where)
        written = asyncio.get_running_loop().create_future()
        log.when_synced(end, lambda: written.set_result(None))
        await written


class _Clerk:
    """Carries out what one life of the coordinator has decided."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.host: Host[Record] | None = None

    def hear(self, due: object) -> None:
        if isinstance(due, MarkersDue):
            for where in due.partitions:
                self._broker.node.spawn(self._end(due, where))

    async def _end(self, due: MarkersDue, where: TopicPartition) -> None:
        await self._broker.write_marker(due, where)
        if not self._broker.calm and self._broker.world.chance.random() < 0.1:
            await self._broker.write_marker(due, where)
        host = self.host
        assert host is not None, "a machine decided before it had begun"
        host.submit(lambda now: host.machine.markers_written(now, due, (where,)))


def _raise(error: WaystationError | None) -> None:
    if error is not None:
        raise error
