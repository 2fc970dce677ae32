"""One replica of a companion's partition: the book that is kept of it, and kept up to date.

1. Everything that is committed is applied, in slices, whether this node leads or follows; so the
   next leader has the index at hand.
2. While this node leads, what is due is delivered (``schedule_leader.py``); a decision that cannot
   be appended makes it begin anew, as any new leader would.
3. A damaged index is built anew from the log; what else goes wrong is tried again, later and later.
4. Files are written by threads, one upkeep at a time.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from waystation.broker.moving import Courier
from waystation.broker.schedule_leader import ScheduleLeader, ScheduleMeters
from waystation.model.errors import (
    CorruptBatchError,
    InvalidRecordError,
    NotLeaderError,
    StorageError,
    WaystationError,
)
from waystation.model.ids import LeaderEpoch, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.partition.intake import RejectedRecordsError
from waystation.partition.partition import Partition
from waystation.records.batch import rows_of
from waystation.records.header import batches, check
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.scheduling.checkpoint import CHECKPOINT
from waystation.scheduling.errors import DamagedIndexError, InvalidScheduleError
from waystation.scheduling.headers import check_rows
from waystation.scheduling.schedule import Schedule
from waystation.scheduling.settings import ScheduleSettings
from waystation.storage.log import Log
from waystation.storage.names import SCHEDULE
from waystation.storage.schedule_files import ScheduleFiles
from waystation.telemetry.logs import get_logger

__all__ = ["ScheduleKeeper"]

_CHUNK_BYTES: Final = 256 << 10
_CHUNKS: Final = 4
_BUFFERS: Final = 4
_SLICE_S: Final = 0.002
_RETRY_S, _RETRY_MAX_S = 0.1, 10.0
_CHECKPOINT_S: Final = 60.0

_events = get_logger("schedules")


class UntimedRecordsError(RejectedRecordsError, InvalidRecordError):
    """Records of a companion topic do not say, in a way that can be kept, when they are due."""


class ScheduleKeeper:
    """The book, a task that keeps it, and one that writes it down."""

    def __init__(
        self,
        partition: Partition,
        target: TopicPartition,
        settings: Callable[[], ScheduleSettings],
        limit_bytes: Callable[[], int],
        courier: Courier,
        clock: Clock,
        meters: ScheduleMeters,
    ) -> None:
        """``limit_bytes`` is the largest batch that the target takes."""
        self.partition, self.target = partition, target
        self.schedule: Schedule | None = None
        """Once it is opened, and while it is whole."""
        self.leader: ScheduleLeader | None = None
        """While this node leads and the book is open."""
        self.failures = 0
        self._settings = settings
        self._limit_bytes = limit_bytes
        self._courier = courier
        self._clock = clock
        self._meters = meters
        self._news = asyncio.Event()
        self._epoch: LeaderEpoch | None = None
        self._log: Log = partition.log
        self._stumbled = self._is_ending = False
        self._waiting: list[tuple[Offset, asyncio.Future[None]]] = []
        self._upkeep: asyncio.Task[None] | None = None
        self._counting: asyncio.Task[None] | None = None
        self._saved_s = clock.monotonic()
        self._tasks = Tasks()
        partition.read_waiters.add(self.wake)
        self._running = self._tasks.spawn(self._run(), f"schedule-{partition.name}")

    def wake(self) -> None:
        """Something may be to be done."""
        self._news.set()

    async def aclose(self) -> None:
        """Let go of everything; the log has it all."""
        self.partition.read_waiters.remove(self.wake)
        self._running.cancel()
        await asyncio.wait([self._running])
        await self._let_go()

    def check(self, batch: memoryview, now: Millis) -> None:
        """Refuse a produced batch for a record that does not say when it is due.

        HOT: once per batch that is produced to a companion.
        """
        try:
            recurring = check_rows(rows_of(batch), now, self._settings())
        except InvalidScheduleError as error:
            raise UntimedRecordsError([(error.index or 0, error.problem)]) from error
        if recurring and self.schedule is not None:
            self.schedule.check_recurring(recurring)

    async def applied(self, schedule: Schedule, end: Offset) -> None:
        """Return once everything before ``end`` is in the book; raises if that may never be."""
        if schedule.applied < end:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((end, waiter))
            self.wake()
            await waiter

    def begin_anew(self) -> None:
        """A decision could not be appended: lead as if just elected."""
        self._stumbled = True
        self.wake()

    # --- a life -------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                schedule = await self._opened()
                self.schedule = schedule
                await self._keep(schedule)
                await self._let_go()
            except asyncio.CancelledError:
                raise
            except DamagedIndexError as error:
                _events.warning("index.damaged", **self._facts(error))
                await self._let_go()
                await asyncio.to_thread(self._forget_index)
            except Exception as error:  # the outermost frame of this task
                expected = isinstance(error, WaystationError | OSError)
                tell = _events.warning if expected else _events.error
                tell("schedule.failed", **self._facts(error), exc_info=None if expected else error)
                await self._let_go()
            delay_s = min(_RETRY_S * 2**self.failures, _RETRY_MAX_S)
            self.failures = min(self.failures + 1, 16)
            await asyncio.sleep(delay_s)

    def _facts(self, error: Exception) -> dict[str, str]:
        return {"partition": str(self.partition.name), "reason": str(error)}

    async def _opened(self) -> Schedule:
        """As the last checkpoint left it; files are read by a thread."""
        self._log = log = self.partition.log
        self._is_ending = False
        log.check_online()
        if not log.directory.holds(log):
            raise StorageError(f"{self.partition.name} was deleted")
        entries, end = log.epochs.entries, log.log_end

        def log_has(offset: Offset, epoch: LeaderEpoch) -> bool:
            if offset == 0:
                return True
            wrote = [one.epoch for one in entries if one.start < offset]
            return offset <= end and bool(wrote) and wrote[-1] == epoch

        def opened() -> Schedule:
            files = ScheduleFiles(log.directory.disk, log.path / SCHEDULE)
            return Schedule.opened(self.target, files, self._settings(), log_has)

        return await asyncio.to_thread(opened)

    def _forget_index(self) -> None:
        log = self._log
        ScheduleFiles(log.directory.disk, log.path / SCHEDULE).remove(CHECKPOINT)

    async def _let_go(self) -> None:
        await self._resign()
        self._is_ending = True
        if self._upkeep is not None:
            # A thread may be at work on the files.
            await asyncio.wait([self._upkeep])
        schedule, self.schedule = self.schedule, None
        await self._tasks.aclose()
        self._counting = None
        if schedule is not None:
            schedule.index.close()

    async def _keep(self, schedule: Schedule) -> None:
        while self._log is self.partition.log:  # until it is moved to another directory
            self._news.clear()
            schedule.settings = self._settings()
            is_behind = await self._feed(schedule)
            self._tell_applied(schedule)
            await self._follow_leadership(schedule)
            delay_s = _CHECKPOINT_S
            if self.leader is not None:
                try:
                    delay_s = await self.leader.turn()
                    self.failures = 0
                except DamagedIndexError:
                    raise
                except WaystationError as error:
                    if not self.failures:
                        _events.warning("schedule.paused", **self._facts(error))
                    await self._resign()
                    self.failures = min(self.failures + 1, 4)
                    delay_s = _RETRY_S * 2**self.failures
            self._keep_up(schedule)
            self._count_anew(schedule)
            if not self._news.is_set() and delay_s > 0 and not is_behind:
                await self._wait(delay_s)
            else:
                await asyncio.sleep(0)

    async def _wait(self, delay_s: float) -> None:
        try:
            async with asyncio.timeout(delay_s):
                await self._news.wait()
        except TimeoutError:
            pass

    # --- the log ------------------------------------------------------------------------

    async def _feed(self, schedule: Schedule) -> bool:
        """Apply what is committed, in slices of the loop's time; whether there is more.

        Not all of it at once: what is due is not to wait for what was sent.
        """
        partition = self.partition
        until_s = self._clock.monotonic() + _SLICE_S
        for _ in range(_CHUNKS):
            if self._must_write_first(schedule):
                return False
            offset = max(schedule.applied, partition.log_start)
            if offset >= partition.high_watermark:
                return False
            region, _ = partition.read(offset, _CHUNK_BYTES, at_least_one=True)
            if region is None:
                return False
            chunk = region.read()
            for at, header in batches(chunk):
                if header.next_offset <= schedule.applied:
                    continue
                for _ in self._applied(schedule, chunk, at):
                    if self._clock.monotonic() >= until_s:
                        await asyncio.sleep(0)
                        until_s = self._clock.monotonic() + _SLICE_S
            await asyncio.sleep(0)
        return True

    def _must_write_first(self, schedule: Schedule) -> bool:
        """Whether more is in memory than there should be; whoever writes it down wakes us."""
        most = _BUFFERS * schedule.settings.schedule_buffer_entries
        return self._upkeep is not None and schedule.index.gathered >= most

    def _applied(self, schedule: Schedule, chunk: bytes, at: int) -> Iterable[None]:
        try:
            check(chunk, at)
        except CorruptBatchError as error:
            _events.error("batch.unreadable", **self._facts(error))
            schedule.skip(chunk, at)
            return ()
        return schedule.applying(chunk, at)

    # --- leadership ---------------------------------------------------------------------

    async def _follow_leadership(self, schedule: Schedule) -> None:
        partition = self.partition
        epoch = partition.leadership.epoch if partition.leading else None
        if epoch == self._epoch and not self._stumbled:
            return
        await self._resign()
        self._check_history(schedule)
        if epoch is not None and partition.leading:
            self._epoch = partition.leadership.epoch
            schedule.lead(self._epoch, partition.log_end)
            self.leader = ScheduleLeader(
                schedule,
                partition,
                self._epoch,
                self._limit_bytes,
                self._courier,
                self.wake,
                self._clock,
                self._meters,
            )

    def _check_history(self, schedule: Schedule) -> None:
        """After an unclean election the log may be another one than what was applied."""
        log, applied = self.partition.log, schedule.applied
        is_known = applied == 0 or (
            applied <= log.log_end
            and log.epochs.epoch_at(Offset(applied - 1)) == schedule.leader_epoch
        )
        if not is_known and applied > log.log_start:
            raise DamagedIndexError(f"the log is not the one that was applied up to {applied}")

    def _tell_applied(self, schedule: Schedule) -> None:
        if not self._waiting:
            return
        for end, waiter in self._waiting:
            if end <= schedule.applied and not waiter.done():
                waiter.set_result(None)
        self._waiting = [one for one in self._waiting if not one[1].done()]

    async def _resign(self) -> None:
        leader, self.leader, self._epoch = self.leader, None, None
        self._stumbled = False
        waiting, self._waiting = self._waiting, []
        for _, waiter in waiting:
            if not waiter.done():
                waiter.set_exception(
                    NotLeaderError(
                        self.partition.name,
                        self.partition.leadership.leader,
                        self.partition.leadership.epoch,
                    )
                )
        if leader is not None:
            await leader.aclose()

    # --- files --------------------------------------------------------------------------

    def _keep_up(self, schedule: Schedule) -> None:
        """Write down what has changed, beside everything else, if it is much or long ago."""
        if self._upkeep is not None:
            return
        waited_s = self._clock.monotonic() - self._saved_s
        is_old = waited_s >= _CHECKPOINT_S and schedule.applied > schedule.saved
        is_old = is_old and not schedule.is_between
        if schedule.wants_upkeep() or is_old:
            self._saved_s = self._clock.monotonic()
            self._upkeep = self._tasks.spawn(
                self._write_down(schedule), f"schedule-upkeep-{self.partition.name}"
            )
            self._upkeep.add_done_callback(self._written)

    def _count_anew(self, schedule: Schedule) -> None:
        """A log that was cleaned has decisions about what is gone, all from before this leader."""
        if schedule.is_miscounted and schedule.mover.leads and self._counting is None:
            name = f"schedule-count-{self.partition.name}"
            self._counting = self._tasks.spawn(self._count(schedule), name)

    async def _count(self, schedule: Schedule) -> None:
        for _ in schedule.index.counting():
            await asyncio.sleep(_SLICE_S)
            if self.schedule is not schedule or not schedule.mover.leads:
                break
        else:
            schedule.is_miscounted = False
        self._counting = None

    async def _write_down(self, schedule: Schedule) -> None:
        steps, saved = schedule.upkeep(), schedule.saved
        try:
            for step in steps:
                await asyncio.to_thread(step)
                if self._is_ending and schedule.saved > saved:
                    return  # the rest is tidying up
        except DamagedIndexError as error:
            _events.warning("index.damaged", **self._facts(error))
            await asyncio.to_thread(self._forget_index)
        except OSError as error:
            _events.warning("index.not.written", **self._facts(error))
        finally:
            steps.close()

    def _written(self, _: "asyncio.Task[None]") -> None:
        self._upkeep = None
        self.wake()
