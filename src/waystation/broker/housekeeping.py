"""What a broker does when nobody asks: sync, checkpoint, roll, expire, end what hangs, tidy up.

All of it is bounded work on the loop; syncs and checkpoint files go to threads.
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence

from waystation.broker.acknowledged import Acknowledged
from waystation.broker.archives import Archives
from waystation.broker.hanging import Hanging
from waystation.broker.holdings import Holdings
from waystation.broker.replicas import Replicas
from waystation.broker.settings import BrokerSettings
from waystation.model.errors import StorageError
from waystation.partition.partition import Partition
from waystation.runtime.clock import Clock
from waystation.storage.directory import DataDirectory, Work
from waystation.storage.retention import due_bytes, retire
from waystation.telemetry.logs import get_logger

events = get_logger("housekeeping")

_TICK_S = 0.5
# A sync costs those who wait for another one; a restart verifies what was not synced.
_MUCH_BYTES = 32 << 20
_PATIENCE = 6
_STEPS_PER_ROUND = 2
# How many partitions are looked after before others get their turn of the loop.
_PARTITIONS_PER_TURN = 50


class Housekeeping:
    """One task that goes round all partitions."""

    def __init__(
        self,
        replicas: Replicas,
        directories: Sequence[DataDirectory],
        holdings: Holdings,
        archives: Archives,
        acknowledged: Acknowledged,
        hanging: Hanging,
        settings: Callable[[], BrokerSettings],
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._directories = directories
        self._holdings = holdings
        self._archives = archives
        self._acknowledged = acknowledged
        self._hanging = hanging
        self._settings = settings
        self._clock = clock
        self._flushed_up_to = self._keys_seen = 0
        self._checkpointed_s = self._retired_s = 0.0
        self._checkpoints: dict[DataDirectory, Iterator[Work]] = {}

    async def run(self) -> None:
        """Go on until cancelled; what fails once is tried again in the next round."""
        self._checkpointed_s = self._retired_s = self._clock.monotonic()
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                await self._round()
            except Exception as error:  # the outermost frame of this task
                events.error("round.failed", exc_info=error)

    async def _round(self) -> None:
        settings, now_s = self._settings(), self._clock.monotonic()
        self._keys_seen = 0
        await self._each(self._tend)
        self._replicas.keys_known = self._keys_seen
        self._holdings.tidy_journals()
        self._flush_some(settings.log_flush_offset_checkpoint_interval_ms)
        since_checkpoint_ms = (now_s - self._checkpointed_s) * 1_000
        if since_checkpoint_ms >= settings.log_flush_offset_checkpoint_interval_ms:
            self._checkpointed_s = now_s
            self._begin_checkpoints()
        await self._checkpoint_some()
        if (now_s - self._retired_s) * 1_000 >= settings.log_retention_check_interval_ms:
            self._retired_s = now_s
            await self._archives.look()
            await self._acknowledged.look()
            await self._each(self._retire)
        await self._drop_retired()
        self._hanging.look_if_due()

    def _begin_checkpoints(self) -> None:
        """Write down how far every log is safe, in the rounds from now on."""
        marks = {one.name: one.high_watermark for one in self._replicas}
        for directory in self._directories:
            if directory.offline is None and directory not in self._checkpoints:
                self._checkpoints[directory] = directory.checkpoint_steps(marks)

    async def _checkpoint_some(self) -> None:
        """A hundred logs at once would take both cores for a second: a few per round will do."""
        for directory, steps in list(self._checkpoints.items()):
            for _ in range(_STEPS_PER_ROUND):
                step = next(steps, None)
                if step is None:
                    del self._checkpoints[directory]
                    break
                await asyncio.to_thread(step)

    def _flush_some(self, interval_ms: int) -> None:
        """Sync logs in turn, those that need it: all at once would stop those who wait."""
        every = list(self._replicas)
        share = math.ceil(len(every) * _TICK_S * 1_000 / interval_ms)
        now = self._clock.now()
        for partition in every[self._flushed_up_to : self._flushed_up_to + share]:
            log = partition.log
            waited_ms = 0 if log.dirty_since is None else now - log.dirty_since
            if log.unflushed_bytes >= _MUCH_BYTES or waited_ms >= interval_ms * _PATIENCE:
                partition.flush()
        self._flushed_up_to += share
        if self._flushed_up_to >= len(every):
            self._flushed_up_to = 0

    async def _each(self, look_after: Callable[[Partition], None]) -> None:
        for number, partition in enumerate(self._replicas):
            if number % _PARTITIONS_PER_TURN == _PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
            try:
                look_after(partition)
            except StorageError as error:
                partition.fail(error)

    async def _drop_retired(self) -> None:
        """Remove what retention and truncation let go, once the new starts are written down."""
        for directory in self._directories:
            retired = [log for log in list(directory.logs.values()) if log.retired]
            if retired:
                await asyncio.to_thread(directory.plan_log_starts())
            for log in retired:
                directory.drop_retired(log, self._clock.now())
            await asyncio.to_thread(self._free, directory)

    def _free(self, directory: DataDirectory) -> None:
        directory.purge(self._clock.now())
        directory.keep_reserve()

    def _tend(self, partition: Partition) -> None:
        now = self._clock.now()
        partition.log.maybe_roll(now)
        if partition.log.once:
            partition.log.forget_keys(now)
            self._keys_seen += len(partition.log.once)
        partition.sync_if_due(now)

    def _retire(self, partition: Partition) -> None:
        if not partition.leading:
            return
        log, now, high_watermark = partition.log, self._clock.now(), partition.high_watermark
        archived = self._archives.kept_from(partition)
        hold = self._acknowledged.hold(partition)
        kept_from = archived
        if hold is not None:
            kept_from = hold.kept_from if archived is None else min(hold.kept_from, archived)
        freed_bytes = retire(log, now, high_watermark, kept_from)
        if hold is not None and kept_from is not None:
            freed_bytes += self._acknowledged.let_go(
                partition, hold, now, min(kept_from, high_watermark)
            )
        if freed_bytes:
            events.info("segments.retired", partition=str(partition.name), freed_bytes=freed_bytes)
        if archived is not None:
            self._archives.held(partition, due_bytes(log, now, high_watermark))
