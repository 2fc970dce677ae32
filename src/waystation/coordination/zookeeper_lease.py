"""A lease in ZooKeeper: a session of its own, and a node that ends with it.

kazoo keeps a session alive by itself for as long as the process runs.  A lease must end when its
owner stops asking for it, or hangs: so a thread watches the time since the last ``keep_alive``
and ends the session when it is up.  A process that is killed or paused no longer keeps the
session alive, and ZooKeeper ends it after the lease's time.

The keys of a lease whose node is gone are deleted by whichever store notices first.
"""

import threading
from collections.abc import Awaitable, Callable
from typing import Any

from waystation.coordination.store import LeaseId
from waystation.coordination.zookeeper_layout import Layout, lease_of
from waystation.coordination.zookeeper_session import Access, LostError, Session
from waystation.model.errors import LeaseExpiredError, StoreUnavailableError
from waystation.runtime.clock import Clock


class ZookeeperLease:
    """Made by the store; ``begin`` before use."""

    def __init__(
        self,
        access: Access,
        layout: Layout,
        clock: Clock,
        ttl_s: float,
        timeout_s: float,
        reap: Callable[[], Awaitable[Any]],
    ) -> None:
        """``reap`` deletes the keys of leases that have ended."""
        self._access = access
        self._layout = layout
        self._clock = clock
        self._ttl_s = ttl_s
        self._reap = reap
        self._session = Session(access, ttl_s, timeout_s, on_expired=self._expired)
        self._ended = threading.Event()
        self._renewed = threading.Condition()
        self._ends_at = 0.0
        self._id = LeaseId(0)

    @property
    def id(self) -> LeaseId:
        """What a transaction binds puts to."""
        return self._id

    @property
    def ended(self) -> bool:
        """Whether it certainly has ended."""
        return self._ended.is_set()

    async def begin(self) -> None:
        """Open the session and make the node."""
        began = self._clock.monotonic()
        await self._session.open()
        try:
            path = await self._session.call(
                "create", f"{self._layout.leases}/", b"", ephemeral=True, sequence=True
            )
        except LostError as problem:
            await self._session.close()
            raise StoreUnavailableError(f"{self._access.name}: no lease, {problem}") from problem
        except BaseException:
            await self._session.close()
            raise
        self._id = lease_of(path)
        self._ends_at = began + self._ttl_s
        name = f"lease-{self._id}"
        threading.Thread(target=self._watch_time, name=name, daemon=True).start()

    async def keep_alive(self) -> None:
        """Let the lease's time start anew; ``LeaseExpiredError`` if it ended before."""
        asked = self._clock.monotonic()
        if self._ended.is_set():
            raise self._has_ended()
        try:
            found = await self._session.call("exists", self._layout.lease(self._id))
        except LostError as problem:
            raise StoreUnavailableError(
                f"{self._access.name}: lease {self._id} may not be renewed, {problem}"
            ) from problem
        except StoreUnavailableError:
            if self._ended.is_set():
                raise self._has_ended() from None
            raise
        with self._renewed:
            if found is None or self._ended.is_set():
                self._ended.set()
                raise self._has_ended()
            self._ends_at = asked + self._ttl_s

    async def revoke(self) -> None:
        """End the lease and delete its keys now."""
        await self.release()
        await self._reap()

    async def release(self) -> None:
        """End the lease; its keys go when somebody notices."""
        self._expired()
        await self._session.close()

    def _has_ended(self) -> LeaseExpiredError:
        return LeaseExpiredError(f"lease {self._id} has ended")

    def _expired(self) -> None:
        """There is no way back: a later session of the same client is another lease."""
        self._ended.set()
        with self._renewed:
            self._renewed.notify_all()

    def _watch_time(self) -> None:
        """In a thread of its own, so that a loop that hangs does not keep its lease."""
        with self._renewed:
            while not self._ended.is_set():
                left_s = self._ends_at - self._clock.monotonic()
                if left_s <= 0:
                    self._ended.set()
                else:
                    self._renewed.wait(left_s)
        self._session.stop()
