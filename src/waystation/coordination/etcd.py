"""The coordination store of a cluster, in etcd.

A key's version is the revision that wrote it last, and revisions are etcd's own.  They grow also
when somebody else uses the same etcd, of which our watches see nothing; but whoever read a
revision may wait for a watch of everything to reach it.  So every change touches one key more,
the folder's own, which knows our last revision; and a read that finds etcd further than that,
because of others or of a lease that ended, touches it too.

Reads are linearizable.  Leases last whole seconds, and not less than etcd's own minimum of one
and a half elections: never shorter than was asked.

How a server is chosen and what a lost answer means is in ``etcd_gateway.py``; how watches
survive servers, in ``etcd_watch.py``.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from waystation.coordination.etcd_gateway import Credentials, Gateway, NotFoundError
from waystation.coordination.etcd_messages import (
    Answer,
    KeepAliveAnswer,
    LeaseAnswer,
    TxnAnswer,
)
from waystation.coordination.etcd_watch import EtcdWatches, key_range
from waystation.coordination.store import (
    ABSENT,
    NO_LEASES,
    LeaseId,
    Snapshot,
    TxnResult,
    Versioned,
    check_prefix,
    check_txn,
)
from waystation.coordination.watches import LocalWatch
from waystation.model.errors import LeaseExpiredError, StoreUnavailableError

A = TypeVar("A", bound=Answer)


class EtcdStore:
    """Open it, or use it as an async context manager, before anything else."""

    def __init__(
        self,
        endpoints: tuple[str, ...],
        folder: str = "waystation",
        *,
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        """``endpoints`` are HOST:PORT of all servers; ``folder`` is what is ours in there."""
        self._root = f"{folder}/"
        self._new_gateway = partial(
            Gateway,
            endpoints,
            self._root.encode(),
            tls=tls,
            credentials=credentials,
            timeout_s=timeout_s,
        )
        self._gateway = self._new_gateway()
        self._watches = EtcdWatches(self._gateway, self._root)
        self._name = f"etcd at {','.join(endpoints)}"
        self._closed = False

    async def open(self) -> None:
        """Make the folder if it is new; a wrong address or password is told now."""
        await self._gateway.open()
        try:
            new = {"compare": [self._compare("", ABSENT)], "success": [self._put("", b"", None)]}
            await self._ask("kv/txn", new, TxnAnswer)
        except BaseException:
            await self._gateway.close()
            raise

    async def close(self) -> None:
        """End all watches and let go of the servers; leases end in their time."""
        self._closed = True
        await self._watches.close()
        await self._gateway.close()

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
        """Everything under ``prefix``, as most of the servers know it now."""
        check_prefix(prefix)
        wanted = {"request_range": key_range(self._root, prefix)}
        answer = await self._ask("kv/txn", {"success": [wanted, self._folder()]}, TxnAnswer)
        if answer.header.revision > _revision(answer):
            touch = self._put("", b"", None)
            answer = await self._ask("kv/txn", {"success": [wanted, touch]}, TxnAnswer)
        found = ((kv.key.decode()[len(self._root) :], kv) for kv in answer.read(0))
        items = {key: Versioned(kv.value, kv.mod_revision) for key, kv in found if key}
        return Snapshot(items, answer.header.revision)

    async def txn(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        leases: Mapping[str, LeaseId] = NO_LEASES,
    ) -> TxnResult:
        """As the port says; never asked twice, but of a server that certainly did nothing."""
        check_txn(compares, puts, deletes, leases)
        body = {
            "compare": [self._compare(key, version) for key, version in compares.items()],
            "success": [*self._operations(puts, deletes, leases), self._folder()],
            "failure": [self._folder()],
        }
        repeat = not puts and not deletes
        try:
            answer = await self._ask("kv/txn", body, TxnAnswer, repeat=repeat)
        except NotFoundError as problem:
            raise LeaseExpiredError(
                f"one of leases {sorted(leases.values())} has ended"
            ) from problem
        revision = _revision(answer)
        versions = dict.fromkeys(puts, revision) if answer.succeeded else {}
        return TxnResult(answer.succeeded, revision, versions)

    async def lease(self, ttl_ms: int) -> "EtcdLease":
        """A lease that ends in its time if this process does; a lost answer leaves one unused."""
        body = {"TTL": -(-ttl_ms // 1_000)}
        answer = await self._ask("lease/grant", body, LeaseAnswer)
        return EtcdLease(self, LeaseId(answer.ID))

    def watch(self, prefix: str, from_revision: int) -> LocalWatch:
        """As the port says; goes on at another server when one is lost."""
        return self._watches.watch(prefix, from_revision)

    async def keep_alive(self, lease: LeaseId) -> None:
        """Behind ``lease.keep_alive``."""
        self._renewed(lease, await self._ask("lease/keepalive", {"ID": lease}, KeepAliveAnswer))

    @asynccontextmanager
    async def keeping_alive(self, lease: LeaseId) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Behind ``lease.detached``: connections of its own, for a loop of its own."""
        gateway = self._new_gateway()
        await gateway.open()

        async def renew() -> None:
            body = {"ID": lease}
            answer = await gateway.ask("lease/keepalive", body, KeepAliveAnswer, repeat=True)
            self._renewed(lease, answer)

        try:
            yield renew
        finally:
            await gateway.close()

    def _renewed(self, lease: LeaseId, answer: KeepAliveAnswer) -> None:
        if answer.result is None:
            raise StoreUnavailableError(f"{self._name} did not renew lease {lease}: {answer.error}")
        if not answer.result.TTL:
            raise LeaseExpiredError(f"lease {lease} has ended")

    async def revoke(self, lease: LeaseId) -> None:
        """Behind ``lease.revoke``."""
        try:
            await self._ask("lease/revoke", {"ID": lease}, Answer)
        except NotFoundError:
            return

    async def _ask(
        self, path: str, body: Mapping[str, Any], kind: type[A], *, repeat: bool = True
    ) -> A:
        if self._closed:
            raise StoreUnavailableError(f"{self._name} is closed")
        return await self._gateway.ask(path, body, kind, repeat=repeat)

    def _operations(
        self, puts: Mapping[str, bytes], deletes: Collection[str], leases: Mapping[str, LeaseId]
    ) -> list[dict[str, Any]]:
        """What changes something, with the touch of the folder, and nothing if nothing does."""
        touch = self._put("", b"", None)
        deleted = [{"request_delete_range": {"key": self._key(key)}} for key in deletes]
        if puts:
            written = [self._put(key, value, leases.get(key)) for key, value in puts.items()]
            return [*written, *deleted, touch]
        if not deletes:
            return []
        absent = [self._compare(key, ABSENT) for key in deletes]
        return [{"request_txn": {"compare": absent, "failure": [*deleted, touch]}}]

    def _folder(self) -> dict[str, Any]:
        """Read the folder's own key, whose revision is that of our last change."""
        return {"request_range": {"key": self._key("")}}

    def _key(self, key: str) -> bytes:
        return f"{self._root}{key}".encode()

    def _compare(self, key: str, version: int) -> dict[str, Any]:
        """An absent key compares as revision 0, which no key has."""
        return {
            "key": self._key(key),
            "target": "MOD",
            "result": "EQUAL",
            "mod_revision": version,
        }

    def _put(self, key: str, value: bytes, lease: LeaseId | None) -> dict[str, Any]:
        return {"request_put": {"key": self._key(key), "value": value, "lease": lease or 0}}


def _revision(answer: TxnAnswer) -> int:
    """Our last change's, from the read of the folder at the end; 0 if somebody deleted it."""
    return max((kv.mod_revision for kv in answer.read(-1)), default=0)


class EtcdLease:
    """A lease in etcd."""

    __slots__ = ("_store", "id")

    def __init__(self, store: EtcdStore, lease: LeaseId) -> None:
        self._store = store
        self.id = lease

    async def keep_alive(self) -> None:
        """Let the lease's time start anew; ``LeaseExpiredError`` if it ended before."""
        await self._store.keep_alive(self.id)

    def detached(self) -> AbstractAsyncContextManager[Callable[[], Awaitable[None]]]:
        """``keep_alive``, for the loop that enters this."""
        return self._store.keeping_alive(self.id)

    async def revoke(self) -> None:
        """End the lease and delete its keys now."""
        await self._store.revoke(self.id)
