"""Compacts logs beside everything else: one thread, at its own pace.

The loop's thread looks for the log that is most worth it, and exchanges segments that are ready;
reading, writing and syncing are the thread's (``storage/compaction.py``).

1. One log at a time: the most overdue or else the dirtiest, past its topic's ratio.  One whose
   keys did not fit into memory is gone on with until it is done.
2. A log that cannot be compacted now, on a full disk for instance, is left until the next look;
   one that is damaged until a restart.
3. A failing disk takes its directory offline, as it does for everyone else.
4. What a topic keeps for its archive is not compacted before it is archived, and nothing before
   the transactions in it have ended.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from waystation.broker.archives import Archives
from waystation.broker.pace import Pace, StoppedError
from waystation.broker.replicas import Replicas
from waystation.broker.settings import BrokerSettings
from waystation.model.errors import WaystationError
from waystation.model.offsets import Millis
from waystation.partition.partition import Partition
from waystation.runtime.chance import Chance
from waystation.runtime.clock import Clock
from waystation.storage.cleanable import Dirt, dirt_of
from waystation.storage.compaction import Compaction
from waystation.storage.log import Log
from waystation.storage.tickets import NO_DESCRIPTORS, NO_SPACE
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry

events = get_logger("cleaning")

_PARTITIONS_PER_TURN = 50
# Of one core: the loop needs the interpreter too.
_CPU_SHARE = 0.15


class _Past(NamedTuple):
    """The last pass over a log."""

    at: Millis
    horizon: Millis | None
    is_done: bool


class _Candidate(NamedTuple):
    """A log that is worth a pass."""

    partition: Partition
    dirt: Dirt
    is_urgent: bool

    @property
    def worth(self) -> tuple[bool, float]:
        """The greater, the sooner."""
        return self.is_urgent, self.dirt.ratio


class Cleaning:
    """One task and one thread."""

    def __init__(
        self,
        replicas: Replicas,
        archives: Archives,
        settings: Callable[[], BrokerSettings],
        clock: Clock,
        chance: Chance,
        registry: Registry,
    ) -> None:
        self._replicas = replicas
        self._archives = archives
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._pace = Pace(clock, lambda: settings().log_cleaner_io_max_bytes_per_second, _CPU_SHARE)
        self._thread = ThreadPoolExecutor(1, "cleaner")
        self._past: dict[Log, _Past] = {}
        self._refused: dict[Log, str] = {}
        self._put_off: dict[Log, None] = {}
        self._cleaned = registry.counter(
            "waystation_compaction_cleaned_bytes_total", "Bytes of logs that were compacted."
        )
        self._freed = registry.counter(
            "waystation_compaction_freed_bytes_total", "Bytes that compaction made needless."
        )
        self._seconds = registry.histogram(
            "waystation_compaction_seconds", "How long passes over a log took.", high=65_536.0
        )
        self._dirtiest = registry.gauge(
            "waystation_compaction_dirty_ratio_max", "The dirtiest log's share of dirt."
        )
        registry.computed(
            "waystation_compaction_refused_partitions",
            "Logs that are damaged, so that they are not compacted.",
            "gauge",
            lambda: [({}, len(self._refused))],
        )

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await asyncio.sleep(self._settings().log_cleaner_backoff_ms / 1_000)
            try:
                await self._clean_all()
            except Exception as error:  # the outermost frame of this task
                events.error("cleaning.failed", exc_info=error)

    async def close(self) -> None:
        """End the thread; what it has not committed is swept away by the next start."""
        self._pace.stop()
        await asyncio.to_thread(self._thread.shutdown)

    # --- choosing -----------------------------------------------------------------------

    async def _clean_all(self) -> None:
        self._put_off.clear()
        while self._settings().log_cleaner_enable:
            chosen = await self._choose()
            if chosen is None:
                return
            await self._clean(chosen.partition)

    async def _choose(self) -> _Candidate | None:
        """The log that is most worth a pass, if any is."""
        candidates: list[_Candidate] = []
        held: dict[Log, None] = {}
        dirtiest = 0.0
        await self._archives.look()
        for number, partition in enumerate(self._replicas):
            if number % _PARTITIONS_PER_TURN == _PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
            log = partition.log
            held[log] = None
            if not log.settings.compacts or log.directory.offline is not None:
                continue
            try:
                dirt = self._dirt_of(partition)
            except OSError as error:
                self._failed(log, error)
                continue
            dirtiest = max(dirtiest, dirt.ratio)
            candidate = self._judge(partition, dirt, self._clock.now())
            if candidate is not None and log not in self._refused and log not in self._put_off:
                candidates.append(candidate)
        self._dirtiest.set(dirtiest)
        self._forget_all_but(held)
        return max(candidates, key=lambda one: one.worth, default=None)

    def _dirt_of(self, partition: Partition) -> Dirt:
        kept_from, end = self._archives.kept_from(partition), partition.last_stable
        return dirt_of(
            partition.log, end if kept_from is None else min(kept_from, end), self._clock.now()
        )

    def _judge(self, partition: Partition, dirt: Dirt, now: Millis) -> _Candidate | None:
        log = partition.log
        past = self._past.get(log)
        begun = past is not None and not past.is_done
        worth_it = dirt.dirty_bytes and (
            dirt.overdue or begun or dirt.ratio > log.settings.min_cleanable_dirty_ratio
        )
        if worth_it or (past is not None and _has_ripe_tombstones(log, past, now)):
            return _Candidate(partition, dirt, dirt.overdue or begun)
        return None

    def _forget_all_but(self, held: dict[Log, None]) -> None:
        self._past = {log: past for log, past in self._past.items() if log in held}
        self._refused = {log: why for log, why in self._refused.items() if log in held}

    # --- cleaning -----------------------------------------------------------------------

    async def _clean(self, partition: Partition) -> None:
        log, now, began_s = partition.log, self._clock.now(), self._clock.monotonic()
        # Looked at again: others had their turn of the loop since it was chosen.
        dirt = self._dirt_of(partition)
        compaction = Compaction(
            log,
            dirt,
            now=now,
            map_bytes=self._settings().log_cleaner_dedupe_buffer_bytes,
            secret=self._chance.new_id().bytes,
            spent=self._pace.spent,
        )
        try:
            await self._carry_out(compaction)
        except StoppedError:
            return
        except (OSError, WaystationError) as error:
            self._failed(log, error)
            await self._in_thread(compaction.abandon)
        if not compaction.finished:
            self._put_off[log] = None
            return
        self._past[log] = _Past(now, compaction.horizon, compaction.end >= dirt.end)
        took_s = self._clock.monotonic() - began_s
        self._seconds.observe(took_s)
        events.info(
            "log.compacted",
            partition=str(log.name),
            end=compaction.end,
            cleaned_bytes=compaction.cleaned_bytes,
            freed_bytes=compaction.freed_bytes,
            took_s=round(took_s, 3),
        )

    async def _carry_out(self, compaction: Compaction) -> None:
        """Step by step; what is counted shows how far a long pass is."""
        cleaned_bytes, freed_bytes = self._cleaned.value, self._freed.value
        await self._in_thread(self._pace.begin)
        for work in compaction.steps():
            await self._in_thread(work)
            self._cleaned.value = cleaned_bytes + compaction.cleaned_bytes
            self._freed.value = freed_bytes + compaction.freed_bytes

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _failed(self, log: Log, error: Exception) -> None:
        """Put a log off, or for good; or the whole directory if its disk is to blame."""
        if not log.directory.holds(log):
            return
        if isinstance(error, WaystationError):
            self._refused[log] = str(error)
            events.error("compaction.refused", partition=str(log.name), reason=str(error))
        elif isinstance(error, OSError) and error.errno in (*NO_SPACE, *NO_DESCRIPTORS):
            events.warning("compaction.postponed", partition=str(log.name), reason=str(error))
        elif isinstance(error, OSError):
            log.failed(error, "compact")


def _has_ripe_tombstones(log: Log, past: _Past, now: Millis) -> bool:
    """Whether a log that is quiet now holds tombstones whose time has come.

    A busy one loses them in the passes it gets anyway.
    """
    quiet = now - past.at >= log.settings.delete_retention_ms
    return quiet and past.horizon is not None and past.horizon <= now
