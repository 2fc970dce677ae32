"""The lease's own thread: it renews while the loop is busy, and lets go of a loop that hangs."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from waystation.broker.keeping_alive import KeepAlive
from waystation.coordination.store import LeaseId
from waystation.model.errors import LeaseExpiredError, StoreUnavailableError, WaystationError
from waystation.runtime.clock import SystemClock


class ScriptedLease:
    """Ends when it is told to; counts renewals, in whichever thread they come."""

    def __init__(self, *outcomes: WaystationError) -> None:
        self.outcomes = list(outcomes)
        self.renewals: list[float] = []
        self.left = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def id(self) -> LeaseId:
        return LeaseId(1)

    async def keep_alive(self) -> None:
        self.renewals.append(time.monotonic())
        if self.outcomes:
            raise self.outcomes.pop(0)

    async def revoke(self) -> None: ...

    @asynccontextmanager
    async def detached(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        assert asyncio.get_running_loop() is not self._loop
        yield self.keep_alive
        self._loop.call_soon_threadsafe(self.left.set)


def keeping(lease: ScriptedLease, session_s: float) -> tuple[KeepAlive, list[object]]:
    heard: list[object] = []
    return KeepAlive(lease, session_s, 0.02, SystemClock(), heard.append), heard


async def test_a_busy_loop_keeps_its_lease() -> None:
    lease = ScriptedLease()
    thread, _ = keeping(lease, session_s=2.0)
    time.sleep(0.4)  # the loop does something else for a moment
    thread.close()

    assert len(lease.renewals) > 5
    await asyncio.wait_for(lease.left.wait(), 5)


async def test_a_loop_that_hangs_loses_it() -> None:
    lease = ScriptedLease()
    thread, _ = keeping(lease, session_s=0.4)
    began = time.monotonic()
    time.sleep(0.8)
    last = lease.renewals[-1]
    await asyncio.sleep(0.2)
    thread.close()

    assert last - began < 0.3, "renewed although nobody was there"
    assert lease.renewals[-1] > last, "the loop is back"


async def test_what_became_of_renewals_is_told_in_the_loop() -> None:
    away, over = StoreUnavailableError("away"), LeaseExpiredError("over")
    lease = ScriptedLease(away, over)
    _, heard = keeping(lease, session_s=2.0)

    await asyncio.wait_for(lease.left.wait(), 5)
    assert heard == [away, over]
