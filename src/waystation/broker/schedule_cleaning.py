"""Takes what was delivered or cancelled out of companions' logs, so that what waits long pins
nothing but itself.

1. A log is gone through once more than its share (``min.cleanable.dirty.ratio``) of it is dead, by
   what its book says; after a restart perhaps once in vain.
2. What must stay is found on the loop, a few milliseconds at a time, from the book; files are read
   and written by a thread at its own pace (``storage/thinning.py``).
3. A decision goes only if every replica has it and no restart would look for it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from waystation.broker.pace import Pace, StoppedError
from waystation.broker.schedule_keeper import ScheduleKeeper
from waystation.broker.settings import BrokerSettings
from waystation.model.errors import WaystationError
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.runtime.clock import Clock
from waystation.scheduling.keeping import Keeping
from waystation.scheduling.schedule import Schedule
from waystation.storage.thinning import Thinning, thinnable_end
from waystation.telemetry.logs import get_logger

__all__ = ["ScheduleCleaning"]

_CPU_SHARE: Final = 0.15
_REST: Final = 4
"""For every moment on the loop so many are left to others."""
_LEAST_DEAD: Final = 100

_events = get_logger("schedules")


class _Past(NamedTuple):
    """How a log was left by the last pass."""

    end: Offset
    kept: int


class ScheduleCleaning:
    """One task for all companions of a broker."""

    def __init__(
        self,
        keepers: Callable[[], list[ScheduleKeeper]],
        settings: Callable[[], BrokerSettings],
        clock: Clock,
    ) -> None:
        self._keepers = keepers
        self._settings = settings
        self._clock = clock
        self._pace = Pace(clock, lambda: settings().log_cleaner_io_max_bytes_per_second, _CPU_SHARE)
        self._thread = ThreadPoolExecutor(1, "companions")
        self._past: dict[Partition, _Past] = {}

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await asyncio.sleep(self._settings().log_cleaner_backoff_ms / 1_000)
            keepers = self._keepers()
            held = {keeper.partition for keeper in keepers}
            self._past = {one: past for one, past in self._past.items() if one in held}
            for keeper in keepers:
                try:
                    await self._look_at(keeper)
                except StoppedError:
                    return
                except (OSError, WaystationError) as error:
                    name = str(keeper.partition.name)
                    _events.warning("companion.not.cleaned", partition=name, reason=str(error))
                except Exception as error:  # the outermost frame of this task
                    _events.error("cleaning.failed", exc_info=error)

    async def close(self) -> None:
        """End the thread; what it has not committed is swept away by the next start."""
        self._pace.stop()
        await asyncio.to_thread(self._thread.shutdown)

    async def _look_at(self, keeper: ScheduleKeeper) -> None:
        schedule, log = keeper.schedule, keeper.partition.log
        if schedule is None or log.directory.offline is not None:
            return
        end = thinnable_end(log, min(schedule.applied, keeper.partition.last_stable))
        if end <= log.log_start or not self._is_worth_it(keeper, schedule, end):
            return
        before_bytes, began_s = log.size_bytes, self._clock.monotonic()
        keeping = await self._needed(keeper, schedule, end)
        if keeping is None:
            return
        thinning = Thinning(log, keeping, end, now=self._clock.now(), spent=self._pace.spent)
        await self._carry_out(thinning)
        if thinning.finished:
            self._past[keeper.partition] = _Past(end, keeping.count)
            _events.info(
                "companion.cleaned",
                partition=str(log.name),
                end=end,
                freed_bytes=before_bytes - log.size_bytes,
                took_s=round(self._clock.monotonic() - began_s, 3),
            )

    def _is_worth_it(self, keeper: ScheduleKeeper, schedule: Schedule, end: Offset) -> bool:
        """Whether enough is dead before ``end``, if all that lies behind it were alive or dead."""
        past = self._past.get(keeper.partition, _Past(keeper.partition.log_start, 0))
        total = past.kept + max(end - past.end, 0)
        dead = total - schedule.index.pending
        ratio = keeper.partition.settings.min_cleanable_dirty_ratio
        return dead >= _LEAST_DEAD and dead > ratio * total

    async def _needed(
        self, keeper: ScheduleKeeper, schedule: Schedule, end: Offset
    ) -> Keeping | None:
        """What must stay; ``None`` if the book was given up meanwhile."""
        leadership = keeper.partition.leadership
        all_in_sync = set(leadership.replicas) <= set(leadership.in_sync)
        everyone_has = keeper.partition.high_watermark if all_in_sync else Offset(0)
        keeping, start = None, keeper.partition.log.segments[0].base_offset
        steps = schedule.keeping(start, end, everyone_has)
        try:
            while True:
                began_s = self._clock.monotonic()
                found = next(steps, None)
                if found is None or keeper.schedule is not schedule:
                    break
                keeping = found
                await asyncio.sleep((self._clock.monotonic() - began_s) * _REST)
        finally:
            steps.close()
        return keeping if keeper.schedule is schedule else None

    async def _carry_out(self, thinning: Thinning) -> None:
        await self._in_thread(self._pace.begin)
        try:
            for work in thinning.steps():
                await self._in_thread(work)
        except (OSError, WaystationError):
            await self._in_thread(thinning.abandon)
            raise

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work)
