"""The coordination store of a cluster, in ZooKeeper.

Every store keeps a copy of all items, a few thousand small ones, and answers from it after asking
ZooKeeper whether it is still the newest.  Transactions are planned on the copy and go through
only if the plan is still right; what each changed is listed, which is how the copies follow.

``zookeeper_layout.py`` says what lies where, ``zookeeper_plan.py`` why transactions are exact,
``zookeeper_reader.py`` why copies are, and ``zookeeper_lease.py`` how leases end.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

from kazoo.exceptions import NodeExistsError

from waystation.coordination.store import (
    NO_LEASES,
    LeaseId,
    Snapshot,
    TxnResult,
    check_prefix,
    check_txn,
    under,
)
from waystation.coordination.watches import HISTORY_MAX, LocalWatch, Watches
from waystation.coordination.zookeeper_layout import FORMAT, Layout, lease_of
from waystation.coordination.zookeeper_lease import ZookeeperLease
from waystation.coordination.zookeeper_plan import HEAD, Delete, Plan, SetData, Step, plan
from waystation.coordination.zookeeper_reader import Own, Reader
from waystation.coordination.zookeeper_session import Access, LostError, RefusedError, Session
from waystation.model.errors import LeaseExpiredError, StoreUnavailableError, WaystationError
from waystation.runtime.clock import Clock, SystemClock
from waystation.runtime.tasks import Tasks
from waystation.telemetry.logs import get_logger

T = TypeVar("T")

_events = get_logger("coordination")

# Copies that were away for more changes than this are read anew.
_CHANGES_KEPT = 400
_CHANGES_MAX = 600
_DROPPED_AT_ONCE = 200
_REAPED_AT_ONCE = 50
_SESSION_S = 4.0
_PAUSE_S = 0.2


class ZookeeperStore:
    """Open it, or use it as an async context manager, before anything else."""

    def __init__(
        self,
        access: Access,
        folder: str = "waystation",
        *,
        clock: Clock | None = None,
        timeout_s: float = 5.0,
        history_max: int = HISTORY_MAX,
        begin: Callable[..., Session] = Session,
    ) -> None:
        """``folder`` is what is ours in there; it is made if it is missing.

        ``begin`` makes a session: a simulation has its own.
        """
        self._access = access
        self._layout = Layout(folder)
        self._clock = clock or SystemClock()
        self._timeout_s = timeout_s
        self._history_max = history_max
        self._session = begin(access, _SESSION_S, timeout_s, on_connected=self._on_connected)
        self._reader = Reader(self._session, self._layout)
        self._reading = asyncio.Lock()
        self._watches = Watches(0, history_max)
        self._leases: list[ZookeeperLease] = []
        self._tasks = Tasks()
        # What the follower has to look at: the items, and whether a lease has ended.
        self._news = asyncio.Event()
        self._leases_moved = True

    async def open(self) -> None:
        """Connect, make the folder if it is new, and read everything."""
        self._loop = asyncio.get_running_loop()
        await self._session.open()
        try:
            await self._repeat(self._found)
            await self._repeat(self._catch_up)
        except BaseException:
            await self._session.close()
            raise
        self._news.set()
        self._tasks.spawn(self._follow(), "coordination.follow")

    async def close(self) -> None:
        """End all watches, leases and sessions."""
        await self._tasks.aclose()
        self._watches.close()
        for lease in self._leases:
            await lease.release()
        await self._session.close()

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
        """Everything under ``prefix``, after all that was decided before."""
        check_prefix(prefix)
        await self._repeat(self._catch_up)
        copy = self._reader.copy
        keys = sorted(key for key in copy.items if under(prefix, key))
        return Snapshot({key: copy.items[key].versioned for key in keys}, copy.revision)

    async def txn(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        leases: Mapping[str, LeaseId] = NO_LEASES,
    ) -> TxnResult:
        """As the port says; planned again only when ZooKeeper said that it did nothing."""
        check_txn(compares, puts, deletes, leases)
        name = _new_name()
        ends_at = self._loop.time() + self._timeout_s
        while self._loop.time() < ends_at:
            if not self._reader.copy.holds(compares):
                await self._repeat(self._catch_up)
            copy = self._reader.copy
            if not copy.holds(compares):
                return TxnResult(False, copy.revision, {})
            planned = plan(copy, self._layout, name, compares, puts, deletes, leases)
            try:
                results = await self._session.commit(planned.steps)
            except LostError as problem:
                raise self._unavailable(f"{problem}, it may have happened") from problem
            except RefusedError as refusal:
                if refusal.index < planned.leases:
                    ended = f"one of leases {sorted({*leases.values()})} has ended"
                    raise LeaseExpiredError(ended) from refusal
                await self._repeat(self._catch_up)
                continue
            return await self._done(name, planned, results)
        raise self._unavailable("others change the same items all the time, nothing was changed")

    async def lease(self, ttl_ms: int) -> ZookeeperLease:
        """A lease with a session of its own, which ends with this process."""
        lease = ZookeeperLease(
            self._access,
            self._layout,
            self._clock,
            ttl_ms / 1_000,
            self._timeout_s,
            lambda: self._repeat(self._reap),
        )
        await lease.begin()
        self._leases = [*(known for known in self._leases if not known.ended), lease]
        return lease

    def watch(self, prefix: str, from_revision: int) -> LocalWatch:
        """As the port says; changes since ``open`` are replayed as far as they are kept."""
        return self._watches.watch(prefix, from_revision)

    async def _done(self, name: str, planned: Plan, results: list[Any]) -> TxnResult:
        """The answer to what has happened, which nothing that fails from now on can change."""
        revision = results[HEAD].mzxid if planned.changes else 0
        if planned.changes:
            self._reader.own[name] = Own(revision, planned.outcome(revision, results))
        try:
            with contextlib.suppress(LostError, StoreUnavailableError):
                await self._catch_up(asking_all=False)
        finally:
            self._reader.own.pop(name, None)
        return TxnResult(
            True, revision or self._reader.copy.revision, dict.fromkeys(planned.puts, revision)
        )

    async def _found(self) -> None:
        """Make what is missing; refuse a folder that another program or version made."""
        with contextlib.suppress(NodeExistsError):
            await self._session.call("create", self._layout.root, FORMAT, makepath=True)
        found, _ = await self._reader.ask("get", self._layout.root)
        if found != FORMAT:
            raise StoreUnavailableError(
                f"{self._layout.root} of {self._access.name} holds {found[:40]!r}, this version "
                f"reads {FORMAT!r}: it belongs to another program or to a newer Waystation"
            )
        for path in self._layout.folders:
            with contextlib.suppress(NodeExistsError):
                await self._session.call("create", path, b"")

    async def _catch_up(self, *, asking_all: bool = True) -> None:
        """Bring the copy to the newest state, or to the newest that our server knows."""
        async with self._reading:
            if asking_all or self._reader.distrusted:
                await self._session.agree(self._layout.head)
            moved = await self._reader.advance(self._on_news)
            if moved.anew:
                self._watches.lose()
                self._watches = Watches(self._reader.copy.revision, self._history_max)
            elif moved.change:
                self._watches.publish(moved.change)

    async def _follow(self) -> None:
        """Keep the copy up to date, end what hangs on ended leases, drop old changes."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._catch_up(asking_all=False)
                if self._leases_moved:
                    await self._reap()
                await self._drop_old_changes()
            except (LostError, WaystationError) as problem:
                _events.warning("store.not.followed", store=self._access.name, reason=str(problem))
                await asyncio.sleep(_PAUSE_S)
                self._news.set()

    async def _reap(self) -> None:
        """Delete the keys of leases that have ended.

        The leases are listed after the copy was read, over the same connection: one that a key of
        the copy hangs on was there before, and if it is not listed it has ended.
        """
        self._leases_moved = False
        try:
            while True:
                connection = self._session.connections
                await self._catch_up()
                nodes = await self._reader.children(self._layout.leases, watch=self._on_leases)
                if self._session.connections != connection:
                    raise LostError("the connection was lost")
                alive = {0, *map(lease_of, nodes)}
                items = self._reader.copy.items.items()
                dead = {key: held.zxid for key, held in items if held.lease not in alive}
                if not dead:
                    return
                some = dict(list(dead.items())[:_REAPED_AT_ONCE])
                await self.txn(some, {}, list(some))
        except BaseException:
            self._leases_moved = True
            raise

    async def _drop_old_changes(self) -> None:
        """Keep the list of changes short; whoever missed those that go will read everything."""
        changes = self._reader.copy.changes
        if len(changes) <= _CHANGES_MAX:
            return
        by_age = sorted(changes, key=changes.__getitem__)
        old = by_age[: min(len(changes) - _CHANGES_KEPT, _DROPPED_AT_ONCE)]
        dropped, writes = await self._reader.dropped()
        upto = max(dropped, *(changes[name] for name in old))
        steps: list[Step] = [SetData(self._layout.changes, b"%d" % upto, writes)]
        steps += [Delete(self._layout.change(name), -1) for name in old]
        # Refused if somebody else does the same just now, which is as good.
        with contextlib.suppress(RefusedError):
            await self._session.commit(steps)

    async def _repeat(self, read: Callable[[], Awaitable[T]]) -> T:
        """Do again what only reads when its answer is lost, for as long as a caller waits."""
        ends_at = self._loop.time() + self._timeout_s
        while True:
            try:
                return await read()
            except LostError as problem:
                if self._loop.time() >= ends_at:
                    raise self._unavailable(str(problem)) from problem
                await asyncio.sleep(_PAUSE_S / 10)

    def _unavailable(self, problem: str) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"{self._access.name}: {problem}. See that most of its servers run and can be reached"
        )

    def _on_connected(self) -> None:
        """Watches end with a connection, so everything is looked at again."""
        self._leases_moved = True
        self._news.set()

    def _on_news(self, _: Any) -> None:
        """In kazoo's thread."""
        self._tell_loop(self._news.set)

    def _on_leases(self, _: Any) -> None:
        """In kazoo's thread."""
        self._tell_loop(self._on_connected)

    def _tell_loop(self, call: Callable[[], None]) -> None:
        # The loop may have been closed before the last of kazoo's threads ended.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)


def _new_name() -> str:
    """A change's name, which no other has in any process."""
    return uuid4().hex
