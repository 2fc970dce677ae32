"""A coordination store in memory, behind links that lose and delay what is said to it.

``StoreServer`` is the one place where everything is decided; it never errs and forgets nothing.
``SimulatedStore`` is one process's way to it.  What is asked may get lost, and so may the answer:
then, after ``timeout_s``, the asker is told ``StoreUnavailableError`` and may not know whether it
happened.  What is asked is done at most once, however often its message arrives.

How messages travel is handed in as ``Carry``: a world's network (``carry_over``), or none at all
(``carry_at_once``), as the conformance suite has it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Any, TypeVar

from waystation.coordination.store import (
    ABSENT,
    NO_LEASES,
    Change,
    LeaseId,
    Snapshot,
    TxnResult,
    Versioned,
    check_prefix,
    check_txn,
    under,
)
from waystation.coordination.watches import HISTORY_MAX, LocalWatch
from waystation.model.errors import CompactedError, LeaseExpiredError, StoreUnavailableError
from waystation.runtime.clock import Clock
from waystation.testing.network import Network

__all__ = ["Carry", "SimulatedStore", "StoreServer", "carry_at_once", "carry_over"]

T = TypeVar("T")
Answer = Callable[[object], None]
Work = Callable[[Answer], None]
Carry = Callable[[Work, Answer], None]
"""Let the server do the work and the asker have its answer; neither is sure to happen."""

_TIMEOUT_S = 1.0
_POLL_S = 2.0
_PAUSE_S = 0.1


class StoreServer:
    """All items, all leases and the last changes; asked in one order by everyone."""

    def __init__(self, clock: Clock, history_max: int = HISTORY_MAX) -> None:
        self.revision = 0
        self.items: dict[str, Versioned] = {}
        self.when_changed: list[Callable[[Change], object]] = []
        """Told of every change, in its moment: for those who watch the world itself."""
        self._clock = clock
        self._history: deque[Change] = deque()
        self._history_max = history_max
        self._known_from = 0
        self._bound: dict[str, LeaseId] = {}
        self._leases: dict[LeaseId, tuple[float, float]] = {}
        self._ids = count(1)
        self._waiting: dict[int, Callable[[], None]] = {}
        self._waiters = count()

    def get(self, prefix: str) -> Snapshot:
        """Everything under ``prefix``, now."""
        self.expire()
        found = sorted(item for item in self.items.items() if under(prefix, item[0]))
        return Snapshot(dict(found), self.revision)

    def txn(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        leases: Mapping[str, LeaseId],
    ) -> TxnResult:
        """All of it or nothing."""
        self.expire()
        for lease in leases.values():
            self._check(lease)
        if any(self._version_of(key) != version for key, version in compares.items()):
            return TxnResult(False, self.revision, {})
        gone = tuple(key for key in deletes if key in self.items)
        if not puts and not gone:
            return TxnResult(True, self.revision, {})
        revision = self.revision + 1
        for key in (*puts, *gone):
            self._bound.pop(key, None)
        self._bound.update(leases)
        self._publish(Change(revision, {k: Versioned(v, revision) for k, v in puts.items()}, gone))
        return TxnResult(True, revision, dict.fromkeys(puts, revision))

    def lease(self, ttl_ms: int) -> LeaseId:
        """A new lease."""
        lease = LeaseId(next(self._ids))
        self._leases[lease] = (ttl_ms / 1_000, self._clock.monotonic() + ttl_ms / 1_000)
        return lease

    def keep_alive(self, lease: LeaseId) -> None:
        """Let its time start anew."""
        self.expire()
        self._check(lease)
        ttl_s, _ = self._leases[lease]
        self._leases[lease] = (ttl_s, self._clock.monotonic() + ttl_s)

    def revoke(self, lease: LeaseId) -> None:
        """End it, if it has not ended."""
        if self._leases.pop(lease, None) is not None:
            held = tuple(sorted(key for key, by in self._bound.items() if by == lease))
            for key in held:
                del self._bound[key]
            if held:
                self._publish(Change(self.revision + 1, {}, held))

    def expire(self) -> None:
        """End the leases that are overdue; call it now and then."""
        now_s = self._clock.monotonic()
        for lease in [one for one, (_, until_s) in self._leases.items() if until_s <= now_s]:
            self.revoke(lease)

    def restart(self) -> None:
        """Be started again: nothing is lost, and every lease has all of its time, as in etcd."""
        now_s = self._clock.monotonic()
        self._leases = {one: (ttl_s, now_s + ttl_s) for one, (ttl_s, _) in self._leases.items()}
        self._waiting.clear()

    def compact(self) -> None:
        """Forget how things came to be as they are."""
        self._history.clear()
        self._known_from = self.revision

    def changes(self, after: int) -> Change | None:
        """What became of everything since a revision, or nothing yet; it may be too long ago."""
        self.expire()
        if after < self._known_from:
            raise CompactedError(after)
        if after >= self.revision:
            return None
        puts: dict[str, Versioned] = {}
        deletes: dict[str, None] = {}
        for change in self._history:
            if change.revision > after:
                for key, item in change.puts.items():
                    puts[key] = item
                    deletes.pop(key, None)
                for key in change.deletes:
                    puts.pop(key, None)
                    deletes[key] = None
        return Change(self.revision, puts, tuple(deletes))

    def wait(self, run: Callable[[], None]) -> Callable[[], None]:
        """Have ``run`` called at the next change; what takes that back."""
        number = next(self._waiters)
        self._waiting[number] = run
        return lambda: self._waiting.pop(number, None) and None

    def _publish(self, change: Change) -> None:
        self.revision = change.revision
        self.items.update(change.puts)
        for key in change.deletes:
            del self.items[key]
        self._history.append(change)
        if len(self._history) > self._history_max:
            self._known_from = self._history.popleft().revision
        for told in self.when_changed:
            told(change)
        waiting, self._waiting = self._waiting, {}
        for run in waiting.values():
            run()

    def _version_of(self, key: str) -> int:
        item = self.items.get(key)
        return item.version if item else ABSENT

    def _check(self, lease: LeaseId) -> None:
        if lease not in self._leases:
            raise LeaseExpiredError(f"lease {lease} has ended")


class SimulatedStore:
    """One process's connection to the store; it needs no opening."""

    def __init__(self, server: StoreServer, carry: Carry, timeout_s: float = _TIMEOUT_S) -> None:
        self._server = server
        self._carry = carry
        self._timeout_s = timeout_s
        self._following: dict[LocalWatch, asyncio.Task[None]] = {}
        self._closed = False

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """End all watches; ask no more."""
        self._closed = True
        for watch in tuple(self._following):
            watch.close()

    async def get(self, prefix: str) -> Snapshot:
        """As the port says."""
        check_prefix(prefix)
        return await self._ask(lambda: self._server.get(prefix))

    async def txn(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        leases: Mapping[str, LeaseId] = NO_LEASES,
    ) -> TxnResult:
        """As the port says."""
        check_txn(compares, puts, deletes, leases)
        # What is on its way is not changed any more by who sent it.
        asked = dict(compares), dict(puts), tuple(deletes), dict(leases)
        return await self._ask(lambda: self._server.txn(*asked))

    async def lease(self, ttl_ms: int) -> "SimulatedLease":
        """As the port says; a lost answer leaves one unused."""
        return SimulatedLease(self, await self._ask(lambda: self._server.lease(ttl_ms)))

    async def keep_alive(self, lease: LeaseId) -> None:
        """Behind ``lease.keep_alive``."""
        await self._ask(lambda: self._server.keep_alive(lease))

    async def revoke(self, lease: LeaseId) -> None:
        """Behind ``lease.revoke``."""
        await self._ask(lambda: self._server.revoke(lease))

    def watch(self, prefix: str, from_revision: int) -> LocalWatch:
        """As the port says; it outlives every loss of the connection."""
        watch = LocalWatch(self, prefix, from_revision)
        if self._closed:
            watch.close()
        else:
            following = asyncio.get_running_loop().create_task(self._follow(watch, from_revision))
            self._following[watch] = following
        return watch

    def forget(self, watch: LocalWatch) -> None:
        """Follow no longer."""
        if following := self._following.pop(watch, None):
            following.cancel()

    async def _follow(self, watch: LocalWatch, revision: int) -> None:
        while not self._closed:
            try:
                change = await self._asking(self._changes_after(revision), _POLL_S + 1)
            except StoreUnavailableError:
                await asyncio.sleep(_PAUSE_S)
                continue
            except CompactedError:
                watch.lose()
                return
            if change is not None:
                watch.tell(change)
                revision = change.revision

    def _changes_after(self, revision: int) -> Work:
        server = self._server

        def work(answer: Answer) -> None:
            def look() -> None:
                answer(_outcome(lambda: server.changes(revision)))

            if _outcome(lambda: server.changes(revision)) is not None:
                look()
                return
            forget = server.wait(look)

            def give_up() -> None:
                forget()
                answer(None)

            asyncio.get_running_loop().call_later(_POLL_S, give_up)

        return work

    async def _ask(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreUnavailableError("the store is closed")

        def at_server(answer: Answer) -> None:
            answer(_outcome(work))

        answer: T = await self._asking(at_server, self._timeout_s)
        return answer

    async def _asking(self, work: Work, timeout_s: float) -> Any:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def receive(answer: object) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._carry(_once(work), receive)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await answered
        except TimeoutError:
            raise StoreUnavailableError(f"no answer within {timeout_s} s") from None
        if isinstance(answer, Exception):
            raise answer
        return answer


class SimulatedLease:
    """A lease of one process."""

    __slots__ = ("_store", "id")

    def __init__(self, store: SimulatedStore, lease: LeaseId) -> None:
        self._store = store
        self.id = lease

    async def keep_alive(self) -> None:
        """Let the lease's time start anew; ``LeaseExpiredError`` if it ended before."""
        await self._store.keep_alive(self.id)

    async def revoke(self) -> None:
        """End the lease and delete its keys now."""
        await self._store.revoke(self.id)


def carry_at_once(work: Work, receive: Answer) -> None:
    """Let nothing be lost, and no time pass but a turn of the loop."""
    loop = asyncio.get_running_loop()

    def answer(outcome: object) -> None:
        loop.call_soon(receive, outcome)

    loop.call_soon(work, answer)


def carry_over(network: Network, asker: str, server: str) -> Carry:
    """Let messages take a network's links, and whatever these do to them."""

    def carry(work: Work, receive: Answer) -> None:
        def answer(outcome: object) -> None:
            network.send(server, asker, lambda: receive(outcome))

        network.send(asker, server, lambda: work(answer))

    return carry


def _once(work: Work) -> Work:
    """A message that comes twice is acted on once, as a connection sees to."""
    arrived = False

    def first(answer: Answer) -> None:
        nonlocal arrived
        if not arrived:
            arrived = True
            work(answer)

    return first


def _outcome(work: Callable[[], T]) -> T | Exception:
    try:
        return work()
    except (CompactedError, LeaseExpiredError) as error:
        return error
