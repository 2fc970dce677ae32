"""The coordination store of a single node: in process, in one file.

All work on the file is done by one thread, in the order it was asked for; the loop only
waits.  Changes are handed to watchers before the call that made them returns.

Leases run on the clock that was handed in.  One that is overdue has ended before anything
else is read or written, so nobody sees its keys.  Since one process owns the file, its leases
end with it at the latest: a restart after a crash need not wait for them.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from waystation.coordination.sqlite_items import SqliteItems
from waystation.coordination.store import (
    NO_LEASES,
    Change,
    LeaseId,
    Snapshot,
    TxnResult,
    check_prefix,
    check_txn,
)
from waystation.coordination.watches import HISTORY_MAX, LocalWatch, Watches
from waystation.model.errors import LeaseExpiredError, StoreUnavailableError
from waystation.runtime.clock import Clock, SystemClock
from waystation.runtime.tasks import Tasks
from waystation.runtime.timers import Timers

T = TypeVar("T")


class SqliteStore:
    """Open it, or use it as an async context manager, before anything else."""

    def __init__(
        self, path: Path | str, clock: Clock | None = None, *, history_max: int = HISTORY_MAX
    ) -> None:
        self._path = Path(path)
        self._clock = clock or SystemClock()
        self._history_max = history_max
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="coordination")
        self._deadlines: dict[LeaseId, float] = {}
        self._new_ids = count(1)
        self._tasks = Tasks()
        self._wakes_at = inf
        self._closed = False

    async def open(self) -> None:
        """Open or make the file; fails if another process holds it."""
        self._loop = asyncio.get_running_loop()
        try:
            self._items = await self._loop.run_in_executor(self._thread, SqliteItems, self._path)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        self._watches = Watches(self._items.revision, self._history_max)
        self._timers = Timers(self._clock, self._loop)

    async def close(self) -> None:
        """End all watches and let go of the file."""
        self._closed = True
        self._timers.close()
        await self._tasks.aclose()
        self._watches.close()
        await self._loop.run_in_executor(self._thread, self._items.close)
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def get(self, prefix: str) -> Snapshot:
        """Everything under ``prefix``, after all that was asked for before."""
        check_prefix(prefix)
        return await self._run(lambda: self._items.get(prefix))

    async def txn(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        leases: Mapping[str, LeaseId] = NO_LEASES,
    ) -> TxnResult:
        """As the port says; answered when it is on disk and watchers know of it."""
        check_txn(compares, puts, deletes, leases)

        def work() -> TxnResult:
            for lease in leases.values():
                self._check_lease(lease)
            result, change = self._items.txn(compares, puts, deletes, leases)
            self._publish(change)
            return result

        return await self._run(work)

    async def lease(self, ttl_ms: int) -> "SqliteLease":
        """A lease that this process must keep alive and that never outlives it."""
        lease = SqliteLease(self, LeaseId(next(self._new_ids)), ttl_ms / 1_000)
        await self._run(lambda: self._extend(lease))
        return lease

    def watch(self, prefix: str, from_revision: int) -> LocalWatch:
        """As the port says; changes since ``open`` are replayed as far as they are kept."""
        return self._watches.watch(prefix, from_revision)

    async def expire(self) -> None:
        """End the leases that are overdue now; a timer calls this when one may be."""
        next_deadline = await self._run(lambda: min(self._deadlines.values(), default=inf))
        self._wake_by(next_deadline)

    async def keep_alive(self, lease: "SqliteLease") -> None:
        """Behind ``lease.keep_alive``."""

        def work() -> None:
            self._check_lease(lease.id)
            self._extend(lease)

        await self._run(work)

    async def revoke(self, lease: "SqliteLease") -> None:
        """Behind ``lease.revoke``."""
        await self._run(lambda: self._end(lease.id))

    async def _run(self, work: Callable[[], T]) -> T:
        """Have the thread do ``work``; cancelling the caller does not undo it."""

        def in_thread() -> T:
            try:
                self._end_overdue()
                return work()
            except StoreUnavailableError:
                # It may have happened all the same, and nobody was told.
                self._loop.call_soon_threadsafe(self._watches.lose)
                raise

        if self._closed:
            raise StoreUnavailableError(f"{self._path} is closed")
        return await self._loop.run_in_executor(self._thread, in_thread)

    def _wake_by(self, deadline: float) -> None:
        if deadline < self._wakes_at:
            self._wakes_at = deadline
            self._timers.call_later(max(0.0, deadline - self._clock.monotonic()), self._wake)

    def _wake(self) -> None:
        self._wakes_at = inf
        self._tasks.spawn(self.expire(), "coordination.expire")

    # From here on: only in the thread, which alone owns the deadlines and the file.

    def _publish(self, change: Change | None) -> None:
        if change is not None:
            self._loop.call_soon_threadsafe(self._watches.publish, change)

    def _check_lease(self, lease: LeaseId) -> None:
        if lease not in self._deadlines:
            raise LeaseExpiredError(f"lease {lease} has ended")

    def _extend(self, lease: "SqliteLease") -> None:
        deadline = self._clock.monotonic() + lease.ttl_s
        self._deadlines[lease.id] = deadline
        self._loop.call_soon_threadsafe(self._wake_by, deadline)

    def _end_overdue(self) -> None:
        now = self._clock.monotonic()
        for lease in [lease for lease, deadline in self._deadlines.items() if deadline <= now]:
            self._end(lease)

    def _end(self, lease: LeaseId) -> None:
        if lease in self._deadlines:
            self._publish(self._items.end_lease(lease))
            del self._deadlines[lease]


class SqliteLease:
    """A lease of this process; it ends with the process at the latest."""

    __slots__ = ("_store", "id", "ttl_s")

    def __init__(self, store: SqliteStore, lease: LeaseId, ttl_s: float) -> None:
        self._store = store
        self.id = lease
        self.ttl_s = ttl_s

    async def keep_alive(self) -> None:
        """Let the lease's time start anew; ``LeaseExpiredError`` if it ended before."""
        await self._store.keep_alive(self)

    async def revoke(self) -> None:
        """End the lease and delete its keys now."""
        await self._store.revoke(self)
