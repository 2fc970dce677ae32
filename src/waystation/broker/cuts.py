"""Cuts of logs that take long, prepared before they are made.

A follower cuts its log on the loop, since nobody may see it half cut.  Two things would keep the
loop for long: syncing what is kept, and reading which producers it came from.  Both are done
beforehand, the one by the flusher, the other in a thread; meanwhile the follower asks its leader
again, and what it is told then may be another cut, or none.
"""

import asyncio
from typing import Final

from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.runtime.tasks import Tasks
from waystation.storage.truncation import CutPlan

# Read on the loop: some milliseconds.
_LITTLE_BYTES: Final = 4 << 20


class Cuts:
    """The cuts that are being prepared; at most one for each partition."""

    def __init__(self, little_bytes: int = _LITTLE_BYTES) -> None:
        self._little_bytes = little_bytes
        self._plans: dict[Partition, CutPlan] = {}
        self._working: dict[Partition, CutPlan] = {}
        self._tasks = Tasks()

    def ready(self, partition: Partition, offset: Offset) -> bool:
        """Whether the log can be cut at once; otherwise that is being seen to."""
        log = partition.log
        self._plans = {one: plan for one, plan in self._plans.items() if plan.suits(one.log)}
        if log.directory.offline is not None or offset <= log.log_start:
            return True
        if log.flushed_end < log.log_end:
            partition.flush()
            return False
        known = self._plans.get(partition)
        if known is not None and known.offset == offset:
            return True
        plan = CutPlan(log, offset)
        if plan.size_bytes <= self._little_bytes:
            return True
        if partition not in self._working:
            self._working[partition] = plan
            self._tasks.spawn(self._work(partition, plan), f"cut-{partition.name}")
        return False

    def take(self, partition: Partition) -> CutPlan | None:
        """What was prepared for a partition, which is cut now."""
        return self._plans.pop(partition, None)

    async def aclose(self) -> None:
        """Prepare nothing more."""
        await self._tasks.aclose()

    async def _work(self, partition: Partition, plan: CutPlan) -> None:
        try:
            await asyncio.to_thread(plan.work)
            self._plans[partition] = plan
        finally:
            del self._working[partition]
