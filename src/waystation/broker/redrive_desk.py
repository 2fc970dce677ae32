"""Sends dead letters of one partition back, at that partition's leader.

What was sent back is kept as the state of a queue that nobody consumes (``sharing/redriven.py``),
the order that is carried out as its notes, both by the share coordinator.

1. A dead letter is sent back once, whoever asks how often, and whatever dies meanwhile.
2. Those of one key keep their order: one batch is under way at a time, and what is refused holds
   back what has its key.
3. An order goes on under the next leader without being given again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from waystation.broker.kept_queue import KeptQueue, read_state_of
from waystation.broker.moving import Courier
from waystation.broker.outbound import Outbound
from waystation.broker.queue_loading import lineage_of
from waystation.broker.redrive_scanning import Scan, scanned
from waystation.broker.rows import rows_at
from waystation.client.errors import is_retriable
from waystation.client.partitioner import partition_of_key
from waystation.filters.selecting import Filter
from waystation.model.errors import (
    InvalidRequestError,
    NotLeaderError,
    OffsetNotAvailableError,
    WaystationError,
)
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.partition.partition import Partition
from waystation.records.record import Row
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.runtime.timers import Timers
from waystation.scheduling.delivery import delivery_batch, fitting
from waystation.scheduling.records import Decided
from waystation.scheduling.wheel import Due
from waystation.sharing.dead_letters import redriven_headers
from waystation.sharing.leader import QueueLeader
from waystation.sharing.persister import Persister, Read, StateRead
from waystation.sharing.rate_share import RateShare
from waystation.sharing.redrive import (
    CANCELLED,
    DONE,
    FAILED,
    Redrive,
    RedriveOrder,
    addressed,
    blocked_name,
    check_order,
    passed,
    redrive_of,
    saved_redrive,
)
from waystation.sharing.redriven import REDRIVE_GROUP, Redriven
from waystation.sharing.state_records import QueueId
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Counter

__all__ = ["RedriveDesk", "RedriveServices"]

_BATCH_RECORDS: Final = 500
_BLOCKED_MAX: Final = 100
_LOOK_AGAIN_S: Final = 1.0
_RETRY_S, _RETRY_MAX_S = 0.1, 5.0
_NEVER: Final = Millis(1 << 62)

_events = get_logger("redrive")


class RedriveServices(NamedTuple):
    """What all desks of a broker share."""

    persister: Persister
    courier: Courier
    clock: Clock
    timers: Timers
    partitions_of: Callable[[str], int]
    """How many partitions a topic has; raises if it cannot be written to."""
    batch_bytes: Callable[[str], int]
    done: Callable[[Sequence[int], TopicPartition, str], Awaitable[list[int]]]
    """Which of the other partitions of a topic are done with an order."""
    moved: Counter


class RedriveDesk:
    """The dead letters of one partition, in one term of its leader."""

    def __init__(self, partition: Partition, services: RedriveServices) -> None:
        self.partition = partition
        self.epoch = partition.leadership.epoch
        self.closed = False
        self._services = services
        self._clock = services.clock
        self._id = QueueId(REDRIVE_GROUP, partition.topic_id, partition.name.partition)
        self._kept: KeptQueue[Redriven] | None = None
        self._out: Outbound | None = None
        self._redrive: Redrive | None = None
        self._filter: Filter | None = None
        self._not_before = self._look_at = Millis(0)
        self._share: RateShare | None = None
        self._failures = 0
        self._wake = asyncio.Event()
        self._loading = asyncio.Lock()
        self._keys: dict[Offset, bytes | None] = {}
        """Those of the last batch that was sent."""
        self._tasks = Tasks()
        self._task: asyncio.Task[None] | None = None

    # --- loading and ending ---------------------------------------------------------------

    async def load(self, *, begin: bool) -> bool:
        """Take over from the leader before; false if no order was ever given, and none begins."""
        async with self._loading:
            if self._kept is None:
                read = Read(self._id, self.epoch, lineage_of(self.partition))
                state = await read_state_of(self._services.persister, read, begin=begin)
                if state is None:
                    return False
                self._take_over(state)
            return True

    def _take_over(self, state: StateRead) -> None:
        queue = Redriven(max(state.start, Offset(0)))
        queue.load(self._clock.now(), state.batches)
        leader = QueueLeader(self._id, self.epoch, state.state_epoch, queue, state.notes)
        self._kept = KeptQueue(
            leader,
            self._services.persister,
            self._services.timers,
            stored=self._wake.set,
            lost=self._lost,
        )
        self._out = Outbound(
            leader,
            self.epoch,
            self._services.courier,
            self._contents,
            self._clock,
            arrived=self._arrived,
            wake=self._wake.set,
            write=self._kept.write,
        )
        self._redrive = redrive_of(self._out.memo.get("redrive"))
        self._share = None if self._redrive is None else RateShare(self._redrive.order)
        if not self._out.is_idle or (self._redrive is not None and self._redrive.is_running):
            self._go_on()

    def _lost(self, error: WaystationError) -> None:
        _events.info("redrive.fenced", partition=str(self.partition.name), reason=str(error))
        self._tasks.spawn(self.aclose(), f"redrive-{self._id}-over")

    async def aclose(self) -> None:
        """Another leads, or nobody."""
        if self.closed:
            return
        self.closed = True
        if self._kept is not None:
            self._kept.close(self._not_leader())
        await self._tasks.aclose()
        if self._out is not None:
            await self._out.aclose()

    def _not_leader(self) -> WaystationError:
        known = self.partition.leadership
        return NotLeaderError(self.partition.name, known.leader, known.epoch)

    # --- orders ---------------------------------------------------------------------------

    async def begin(self, order: RedriveOrder) -> Redrive:
        """Begin with an order, or find that it was given before; answers when it is stored."""
        check_order(order)
        await self.load(begin=True)
        known = self._redrive
        if known is not None and known.order.id == order.id:
            await self._remember()
            return self._redrive or known
        if known is not None and known.is_running:
            raise InvalidRequestError(
                f"redrive {known.order.id!r} of {self.partition.name} is not over: wait for it, or "
                "cancel it first"
            )
        if order.where:
            Filter(order.where)
        if order.to:
            self._check_target(order.to)
        if not self.partition.settled:
            raise OffsetNotAvailableError(f"{self.partition.name} has a new leader; ask again")
        first = max(order.first, self.partition.log.log_start)
        end = min(order.end, self.partition.last_stable)
        order = order._replace(first=first, end=max(end, first))
        self._redrive = begun = Redrive(order, self._clock.now(), order.first)
        self._share, self._look_at = RateShare(order), Millis(0)
        self._filter = None
        _events.info(
            "redrive.begun", id=order.id, partition=str(self.partition.name), first=first, end=end
        )
        await self._remember()
        self._go_on()
        return begun

    async def cancel(self, redrive_id: str) -> Redrive:
        """Stop; what was sent back stays so."""
        await self.load(begin=False)
        known = self._redrive
        if known is None or known.order.id != redrive_id:
            raise InvalidRequestError(
                f"there is no redrive {redrive_id!r} of {self.partition.name}; the last one is "
                f"{None if known is None else known.order.id!r}"
            )
        if known.is_running:
            self._redrive = known = known.ended(CANCELLED, self._clock.now())
            self._wake.set()
        await self._remember()
        return known

    @property
    def redrive(self) -> Redrive | None:
        """The last order."""
        return self._redrive

    @property
    def redriven(self) -> Redriven | None:
        """What was sent back, if anything ever was."""
        return None if self._kept is None else self._kept.queue

    def _check_target(self, topic: str) -> None:
        if topic == self.partition.name.topic:
            raise InvalidRequestError(
                f"dead letters of {topic} cannot be sent into {topic} itself: name another topic"
            )
        self._services.partitions_of(topic)

    # --- storing --------------------------------------------------------------------------

    async def _remember(self) -> None:
        """Store how far the order got, and wait until it is."""
        kept, out = self._parts()
        self._note()
        await kept.until_stored(out.note())

    def _note(self) -> None:
        if self._out is not None and self._redrive is not None:
            self._out.memo["redrive"] = saved_redrive(self._redrive)

    def _parts(self) -> tuple[KeptQueue[Redriven], Outbound]:
        assert self._kept is not None, f"{self._id} is not loaded"
        assert self._out is not None, f"{self._id} is not loaded"
        return self._kept, self._out

    # --- the loop -------------------------------------------------------------------------

    def _go_on(self) -> None:
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = self._tasks.spawn(self._run(), f"redrive-{self._id}")

    async def _run(self) -> None:
        while not self.closed:
            self._wake.clear()
            try:
                pause_s = await self._step()
                self._failures = 0
            except WaystationError as error:
                pause_s = min(_RETRY_S * 2**self._failures, _RETRY_MAX_S)
                self._failures += 1
                if not is_retriable(error):
                    self._end(FAILED, str(error))
            if pause_s is None:
                return
            try:
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _step(self) -> float | None:
        """Do what can be done now; for how long nothing can, or ``None`` if nothing is left."""
        (kept, out), redrive = self._parts(), self._redrive
        out.work()
        if not out.is_busy:
            if redrive is not None and redrive.is_running:
                self._look_at_others(redrive.order)
                pause_ms = self._not_before - self._clock.now()
                if pause_ms > 0:
                    return pause_ms / 1_000
                await self._advance(out, redrive)
            else:
                self._note()
                out.settle()
        kept.write()
        out.work()
        redrive = self._redrive
        if out.is_idle and (redrive is None or not redrive.is_running):
            return None
        deadline = out.next_deadline()
        if deadline is not None:
            return max(deadline - self._clock.now(), 1) / 1_000
        return _LOOK_AGAIN_S if out.is_busy else 0.0

    async def _advance(self, out: Outbound, redrive: Redrive) -> None:
        """Look for what goes next, and decide upon it."""
        order, queue = redrive.order, self._parts()[0].queue
        queue.log_begins_at(self.partition.log.log_start)
        self._hear_refusals(out)
        if self._filter is None and order.where:
            self._filter = Filter(order.where)
        rate = self._rate()
        most = _BATCH_RECORDS if rate <= 0 else max(1, min(_BATCH_RECORDS, int(rate)))
        scan = Scan(redrive.cursor, order.end, order.since, order.until, self._filter)
        rows, end = await scanned(self.partition, scan, queue.is_settled, most)
        if self._redrive is None or not self._redrive.is_running or self.closed:
            return
        partitions_of = self._services.partitions_of
        going, left = addressed(rows, self._redrive, partitions_of, partition_of_key)
        cursor = end if not going else Offset(min(one[0][0] for one in going.values()))
        self._redrive = passed(self._redrive, left, cursor)
        if going:
            await self._decide(out, going)
        elif end >= order.end:
            self._end(DONE)
        else:
            self._wake.set()

    async def _decide(self, out: Outbound, going: dict[TopicPartition, list[Row]]) -> None:
        deciding: list[tuple[TopicPartition, tuple[Due, ...]]] = []
        for target, rows in going.items():
            room = await out.room(target, len(rows))
            dressed = [_dressed(row) for row in rows[:room]]
            if dressed:
                fit = fitting(dressed, self._services.batch_bytes(target.topic))
                deciding.append((target, tuple((0, row[0]) for row in dressed[:fit])))
        redrive = self._redrive
        if redrive is None or not redrive.is_running or self.closed:
            return
        self._note()
        for target, items in deciding:
            out.decide(target, items)
        count = sum(len(items) for _, items in deciding)
        rate = self._rate()
        if rate > 0:
            self._not_before = Millis(self._clock.now() + int(count * 1_000 / rate))

    # --- the rate -------------------------------------------------------------------------

    def _rate(self) -> float:
        return 0.0 if self._share is None else self._share.rate

    def _look_at_others(self, order: RedriveOrder) -> None:
        """Now and then, ask those who share the rate whether they still need their parts."""
        share, name = self._share, self.partition.name
        others = [] if share is None else share.others(name.partition)
        if share is None or not others or self._clock.now() < self._look_at:
            return
        self._look_at = _NEVER

        async def look() -> None:
            share.heard(await self._services.done(others, name, order.id))
            self._look_at = Millis(self._clock.now() + int(share.look_every_s * 1_000))

        self._tasks.spawn(look(), f"redrive-{self._id}-others")

    def _hear_refusals(self, out: Outbound) -> None:
        for target in out.mover.lanes():
            refused = out.mover.refused(target)
            if refused is None or self._redrive is None:
                continue
            offset = Offset(refused[1])
            blocked = (*self._redrive.blocked, blocked_name(offset, self._keys.get(offset)))
            self._redrive = self._redrive._replace(blocked=blocked)
            problem = f"{target.topic} refuses the dead letter at {offset}"
            _events.warning(
                "redrive.refused",
                partition=str(self.partition.name),
                offset=offset,
                topic=target.topic,
                remedy="raise max.message.bytes of that topic",
            )
            if len(blocked) > _BLOCKED_MAX:
                self._end(FAILED, f"{problem}, and {len(blocked) - 1} others: too many to go on")

    def _end(self, state: str, problem: str = "") -> None:
        redrive = self._redrive
        if redrive is None or not redrive.is_running:
            return
        self._redrive = redrive = redrive.ended(state, self._clock.now(), problem)
        self._note()
        kept, out = self._parts()
        out.note()
        kept.write()
        self._wake.set()
        _events.info(
            "redrive.over",
            id=redrive.order.id,
            partition=str(self.partition.name),
            state=state,
            moved=redrive.moved,
            problem=problem,
        )

    # --- sending --------------------------------------------------------------------------

    async def _contents(self, decided: Decided) -> bytes | None:
        offsets = [Offset(offset) for _, offset in decided.items]
        rows, _ = await rows_at(self.partition, offsets, 1 << 62)
        if len(rows) != len(offsets):
            return None
        self._keys = {at: row[2] for at, row in rows.items()}
        return delivery_batch(decided, [_dressed(rows[at]) for at in offsets])

    def _arrived(self, offsets: Iterable[Offset]) -> None:
        queue, count = self._parts()[0].queue, 0
        for offset in offsets:
            if not queue.is_settled(offset):
                queue.settle(offset)
                count += 1
        self._services.moved.value += count
        if count and self._redrive is not None:
            self._redrive = self._redrive._replace(moved=self._redrive.moved + count)
        self._note()


def _dressed(row: Row) -> Row:
    offset, timestamp, key, value, headers = row
    return offset, timestamp, key, value, redriven_headers(headers)
