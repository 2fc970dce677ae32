"""A lease that is renewed from a thread of its own.

A loop that is busy for a moment must not cost a broker its place in the cluster, and one that
hangs must: others wait for it.  So the thread renews the lease only while the loop gives signs of
life; it stops once there was none for half of the lease's time.

Leases that know no other loop than their store's are renewed there, see ``membership.py``.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable

from waystation.coordination.store import DetachableLease
from waystation.model.errors import LeaseExpiredError, WaystationError
from waystation.runtime.clock import Clock
from waystation.runtime.loops import run
from waystation.telemetry.logs import get_logger

_events = get_logger("broker")

# Signs of life within the time that may pass without any.
_SIGNS = 5


class KeepAlive:
    """The thread of one lease; ``heard`` gets what each renewal came to, in the loop."""

    def __init__(
        self,
        lease: DetachableLease,
        session_s: float,
        every_s: float,
        clock: Clock,
        heard: Callable[[WaystationError | None], None],
    ) -> None:
        self._lease = lease
        self._patience_s = session_s / 2
        self._every_s = every_s
        self._clock = clock
        self._heard = heard
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._wake: Callable[[], object] = lambda: None
        self._sign()
        threading.Thread(target=self._work, name="keep-alive", daemon=True).start()

    def close(self) -> None:
        """Renew no more."""
        self._closed = True
        self._next_sign.cancel()
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._wake()

    def _sign(self) -> None:
        """In the loop: show that it lives."""
        self._seen_at = self._clock.monotonic()
        self._next_sign = self._loop.call_later(self._patience_s / _SIGNS, self._sign)

    def _work(self) -> None:
        try:
            run(self._renew())
        except Exception as error:
            # Without this thread the lease ends: whoever needs it must get another.
            _events.error("keep.alive.failed", exc_info=error)
            self._tell(LeaseExpiredError(f"the lease is no longer renewed: {error}"))

    def _tell(self, outcome: WaystationError | None) -> None:
        # The loop that this lease belongs to may have been closed before it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._heard, outcome)

    async def _renew(self) -> None:
        here, woken = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: here.call_soon_threadsafe(woken.set)
        async with self._lease.detached() as renew:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), self._every_s)
                if self._closed:
                    return
                if self._clock.monotonic() - self._seen_at > self._patience_s:
                    _events.error("loop.stalled", action="the lease is not renewed")
                    continue
                outcome: WaystationError | None = None
                try:
                    await renew()
                except WaystationError as error:
                    outcome = error
                self._tell(outcome)
                if isinstance(outcome, LeaseExpiredError):
                    return
