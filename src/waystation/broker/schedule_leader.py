"""What the leader of a companion's partition does, turn by turn: decide, send, tidy up.

1. Nothing is decided upon before its time by this node's clock, and nothing without its record at
   hand; a record that somebody deleted is given up, and said so.
2. A batch is as large as the target takes, and as what is due at the moment.
3. When nothing is due any more, the log is told that all has arrived: the next leader need not
   ask.
4. A clock that is set back holds up nothing that was decided before.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Final

from waystation.broker.moving import Courier, Moves, append_decision
from waystation.broker.picking import rows_at
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import Millis, Offset
from waystation.partition.partition import Partition
from waystation.records.record import Row
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.scheduling.delivery import delivery_batch, packed, sealed
from waystation.scheduling.records import Decided, Decision
from waystation.scheduling.schedule import Schedule
from waystation.scheduling.wheel import Due
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry

__all__ = ["ScheduleLeader", "ScheduleMeters"]

_LOOK_S: Final = 1.0
"""A clock may be set: look at it this often, whatever is due when."""
_IDLE_S: Final = 60.0
_SETTLE_MS: Final = 500
_PUT_OFF_MS: Final = 30_000
_CLOCK_STEP_MS: Final = 1_000
_STUCK_S: Final = 0.05
_AHEAD_MS: Final = 2_000
_LOOK_AHEAD_MS: Final = 500
_AHEAD_MOST: Final = 10_000
_HELD_BYTES: Final = 16 << 20
_UNKNOWN_BYTES: Final = 64 << 10
_MEASURED: Final = 16
_RECORD_BYTES, _RECORD_HEADER_BYTES = 48, 10

_events = get_logger("schedules")


class ScheduleMeters:
    """What a broker counts of its deliveries."""

    def __init__(self, registry: Registry) -> None:
        self.delivered = registry.counter(
            "waystation_schedule_delivered_total", "Scheduled messages that were delivered."
        )
        self.lateness = registry.histogram(
            "waystation_schedule_lateness_seconds",
            "How long after its time a scheduled message was in its topic, committed.",
            low=1e-3,
            high=86_400.0,
        )
        self.put_off = registry.counter(
            "waystation_schedule_put_off_total", "Messages that their topic refused."
        )

    def arrived(self, batch: Decided, now: Millis) -> None:
        """A batch is in its target."""
        self.delivered.value += len(batch.items)
        for due, _ in batch.items:
            self.lateness.observe(max(now - due, 0) / 1_000)


class ScheduleLeader:
    """One partition, for one leader epoch."""

    def __init__(
        self,
        schedule: Schedule,
        partition: Partition,
        epoch: LeaderEpoch,
        limit_bytes: Callable[[], int],
        courier: Courier,
        wake: Callable[[], None],
        clock: Clock,
        meters: ScheduleMeters,
    ) -> None:
        self._schedule = schedule
        self._partition = partition
        self._epoch = epoch
        self._limit_bytes = limit_bytes
        self._wake = wake
        self._clock = clock
        self._meters = meters
        self._moves = Moves(schedule.mover, courier, self._contents, self.append, wake, clock)
        self._moves.arrived = self._arrived
        self._rows: dict[int, Row | None] = {}
        """Of what is about to be decided upon; ``None`` for what is gone."""
        self._ready: tuple[Decided, bytes] | None = None
        """The last batch that was decided upon here."""
        self._reading = Tasks()
        self._looked_ahead = Millis(0)
        self._typical_bytes = _UNKNOWN_BYTES
        self._seen = clock.now()
        self._active = self._seen

    def append(self, decision: Decision) -> Offset:
        """Put a decision into the log, in this epoch only; where it ends there."""
        self._partition.check_epoch(self._epoch)
        return append_decision(self._partition, decision, self._clock.now())

    async def turn(self) -> float:
        """Do what is to be done now; after how many seconds to look again, if nothing changes."""
        self._watch_clock()
        target, mover = self._schedule.target, self._schedule.mover
        if mover.leads and mover.needs_producer(target):
            await self._moves.enrol(target)
        await self._put_off_refused()
        now, may_go_on = await self._decide()
        self._moves.work()
        self._settle(now)
        self._look_ahead(now)
        return 0.0 if may_go_on else self._delay_s(now)

    async def aclose(self) -> None:
        """Lead no more."""
        self._schedule.resign()
        await self._moves.aclose()
        await self._reading.aclose()

    # --- deciding -----------------------------------------------------------------------

    async def _decide(self) -> tuple[Millis, bool]:
        """Decide upon what is due; when that was, and whether there is more at once."""
        schedule, now = self._schedule, self._clock.now()
        items = schedule.due(now)
        if not items:
            return now, False
        await self._read(items)
        # Others may have come in front meanwhile, or been cancelled, or another may lead.
        self._partition.check_epoch(self._epoch)
        now = self._clock.now()
        items = schedule.due(now)
        for item in [one for one in items if self._rows.get(one[1], ()) is None]:
            self._give_up(item)
        known = list(takewhile(lambda one: self._rows.get(one[1]) is not None, items))
        if not known:
            return now, bool(items)
        rows = [row for _, offset in known if (row := self._rows[offset]) is not None]
        batch = packed(rows, self._limit_bytes(), now)
        chosen = known[: batch.records_count]
        for _, offset in chosen:
            self._rows.pop(offset, None)
        decided = schedule.decide(chosen, now)
        self._ready = (decided, sealed(batch, decided))
        self.append(decided)
        self._active = now
        return now, False

    async def _read(self, items: Sequence[Due]) -> None:
        """Have the records of ``items`` at hand, or of a beginning of it that is not too large."""
        missing = [offset for _, offset in items[: self._room] if offset not in self._rows]
        if missing:
            found = await rows_at(self._partition, missing, self._clock)
            self._rows.update((offset, found.get(offset)) for offset in missing)
            self._measure(found)

    def _look_ahead(self, now: Millis) -> None:
        """Read what is due soon before anybody waits for it, and let go of what is not."""
        if 0 <= now - self._looked_ahead < _LOOK_AHEAD_MS or len(self._reading):
            return
        self._looked_ahead = now
        ahead = self._schedule.ahead(Millis(now + _AHEAD_MS), min(self._room, _AHEAD_MOST))
        soon = [offset for _, offset in ahead]
        self._rows = {offset: self._rows[offset] for offset in soon if offset in self._rows}
        missing = [offset for offset in soon if offset not in self._rows]
        if missing:
            self._reading.spawn(self._read_ahead(missing), f"ahead-{self._partition.name}")

    async def _read_ahead(self, missing: Sequence[int]) -> None:
        is_first = self._typical_bytes == _UNKNOWN_BYTES
        found = await rows_at(self._partition, missing, self._clock)
        self._rows.update(found)
        self._measure(found)
        if is_first:  # now that sizes are known, there may be room for more
            self._looked_ahead = Millis(0)
            self._wake()

    @property
    def _room(self) -> int:
        """How many records may be held, by how large they are."""
        return max(_HELD_BYTES // self._typical_bytes, 1)

    def _measure(self, found: Mapping[int, Row]) -> None:
        some = list(islice(found.values(), _MEASURED))
        if some:
            mean_bytes = sum(map(_bytes_of, some)) // len(some)
            before = mean_bytes if self._typical_bytes == _UNKNOWN_BYTES else self._typical_bytes
            self._typical_bytes = max((before + mean_bytes) // 2, mean_bytes, 1)

    def _give_up(self, item: Due) -> None:
        """Somebody deleted a record that was pending."""
        _events.warning(
            "message.gone", partition=str(self._partition.name), offset=item[1], due=item[0]
        )
        self._rows.pop(item[1], None)
        self.append(self._schedule.give_up(item))

    async def _put_off_refused(self) -> None:
        refused = self._schedule.refused()
        if refused is None:
            return
        offset = refused[1]
        rows = await rows_at(self._partition, [offset], self._clock)
        to = Millis(self._clock.now() + _PUT_OFF_MS)
        _events.warning(
            "message.refused",
            partition=str(self._partition.name),
            offset=offset,
            target=str(self._schedule.target),
            again_ms=_PUT_OFF_MS,
        )
        self._meters.put_off.value += 1
        self.append(self._schedule.put_off(refused, rows.get(offset), to))

    # --- sending ------------------------------------------------------------------------

    async def _contents(self, decided: Decided) -> bytes | None:
        """As it was packed for the decision, or once more of what the log holds."""
        if self._ready is not None and self._ready[0] == decided:
            return self._ready[1]
        offsets = [offset for _, offset in decided.items]
        rows = await rows_at(self._partition, offsets, self._clock)
        if len(rows) < len(offsets):
            return None
        return delivery_batch(decided, [rows[offset] for offset in offsets])

    def _arrived(self, batch: Decided, now: Millis) -> None:
        self._active = now
        self._meters.arrived(batch, now)

    def _settle(self, now: Millis) -> None:
        if now - self._active >= _SETTLE_MS:
            for append in self._schedule.mover.settle():
                self.append(append.decision)

    # --- time ---------------------------------------------------------------------------

    def _watch_clock(self) -> None:
        """A clock that was set back: what waits for another try would wait for it as well."""
        now, mover = self._clock.now(), self._schedule.mover
        if now < self._seen - _CLOCK_STEP_MS:
            self._active = now
            if mover.leads:
                mover.lead(self._epoch)
        self._seen = now

    def _delay_s(self, now: Millis) -> float:
        """Until something is to be done by the clock, after all that is due at ``now`` was seen."""
        schedule, mover = self._schedule, self._schedule.mover
        due, (items, has_arrived) = schedule.next_due(), mover.last(schedule.target)
        is_idle = due is None and not items
        moments = [now + (_IDLE_S if is_idle else _LOOK_S) * 1_000]
        if due is not None and mover.room(schedule.target, 1):
            # What is due and was not given is on its way, and its commit wakes us.
            moments.append(due if due > now else now + _STUCK_S * 1_000)
        deadline = mover.next_deadline()
        if deadline is not None:
            moments.append(deadline)
        if items and has_arrived:
            moments.append(self._active + _SETTLE_MS)
        return max((min(moments) - self._clock.now()) / 1_000, 0.0005)


def _bytes_of(row: Row) -> int:
    """What a record takes, about."""
    _, _, key, value, headers = row
    size_bytes = _RECORD_BYTES + len(key or b"") + len(value or b"")
    for name, held in headers:
        size_bytes += _RECORD_HEADER_BYTES + 4 * len(name) + len(held or b"")
    return size_bytes
