"""What a node that was killed inside a living process had in its hands: a disk and a store.

A node of ``cluster.py`` cannot be killed as a process can: its tasks and threads may run on for a
moment.  From the moment of its death nothing that they do has an effect any more:

1. its disk holds what the kernel had when it died, and every later write fails;
2. its store answers nobody, and its leases end when their time is over, not before;
3. its locks are free, as those of a dead process are.
"""

import asyncio
import errno
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from waystation.coordination.store import (
    NO_LEASES,
    Change,
    CoordinationStore,
    Lease,
    LeaseId,
    Snapshot,
    TxnResult,
    Watch,
)
from waystation.model.errors import StoreUnavailableError
from waystation.records.header import Buffer
from waystation.storage.disk import DiskFile, Lock, RealDisk, RealFile

__all__ = ["Death", "MortalDisk", "MortalStore"]


class Death:
    """Whether it has come; and, in life, whether the store is out of reach."""

    def __init__(self) -> None:
        self.has_come = False
        self._in_reach = asyncio.Event()
        self._in_reach.set()

    def cut_off(self) -> None:
        """Let the store be out of reach, for everything but what is on its way."""
        self._in_reach.clear()

    def reconnect(self) -> None:
        """The store can be reached again."""
        if not self.has_come:
            self._in_reach.set()

    def come(self) -> None:
        """Nothing has an effect from now on."""
        self.has_come = True
        self.cut_off()

    async def until_in_reach(self) -> None:
        """Wait for the store; for the dead, for ever."""
        await self._in_reach.wait()

    def check_disk(self) -> None:
        """Raise as a disk that is gone."""
        if self.has_come:
            raise OSError(errno.EIO, f"the node was killed: {os.strerror(errno.EIO)}")

    def check_store(self) -> None:
        """Raise as a store that is out of reach."""
        if not self._in_reach.is_set():
            raise StoreUnavailableError("the store is out of this node's reach")


# --- the disk -----------------------------------------------------------------------------------


class MortalFile(RealFile):
    """A file whose owner may be dead."""

    __slots__ = ("_death",)

    def __init__(self, path: Path, death: Death, *, create: bool) -> None:
        self._death = death
        super().__init__(path, create=create)

    def pwrite(self, data: Buffer, position: int) -> None:
        """As the port says, for the living."""
        self._death.check_disk()
        super().pwrite(data, position)

    def truncate(self, size_bytes: int) -> None:
        """As the port says, for the living."""
        self._death.check_disk()
        super().truncate(size_bytes)

    def datasync(self) -> None:
        """As the port says, for the living."""
        self._death.check_disk()
        super().datasync()


class MortalDisk(RealDisk):
    """The operating system's file systems, for as long as their user lives."""

    __slots__ = ("_death", "_locks")

    def __init__(self, death: Death) -> None:
        self._death = death
        self._locks: list[Lock] = []

    def unlock(self) -> None:
        """What the kernel does for the dead."""
        for lock in self._locks:
            lock.release()

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        """As the port says, for the living."""
        self._death.check_disk()
        return MortalFile(path, self._death, create=create)

    def replace(self, path: Path, data: bytes, *, durable: bool = True) -> None:
        """As the port says, for the living."""
        self._death.check_disk()
        super().replace(path, data, durable=durable)

    def make_directory(self, path: Path) -> None:
        """As the port says, for the living."""
        self._death.check_disk()
        super().make_directory(path)

    def rename(self, path: Path, to: Path) -> None:
        """As the port says, for the living."""
        self._death.check_disk()
        super().rename(path, to)

    def unlink(self, path: Path) -> None:
        """As the port says, for the living."""
        self._death.check_disk()
        super().unlink(path)

    def remove_tree(self, path: Path) -> None:
        """As the port says, for the living."""
        self._death.check_disk()
        super().remove_tree(path)

    def lock(self, path: Path) -> Lock:
        """As the port says; released by ``unlock`` at the latest."""
        lock = super().lock(path)
        self._locks.append(lock)
        return lock


# --- the store ----------------------------------------------------------------------------------


class MortalStore:
    """A store that several nodes share, as one of them sees it."""

    def __init__(self, store: CoordinationStore, death: Death) -> None:
        self._store, self._death = store, death

    async def get(self, prefix: str) -> Snapshot:
        """As the port says, for the living."""
        self._death.check_store()
        return await self._store.get(prefix)

    async def txn(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        leases: Mapping[str, LeaseId] = NO_LEASES,
    ) -> TxnResult:
        """As the port says; one that was on its way when its maker died may happen."""
        self._death.check_store()
        result = await self._store.txn(compares, puts, deletes, leases=leases)
        self._death.check_store()
        return result

    async def lease(self, ttl_ms: int) -> "MortalLease":
        """A lease that nobody renews after its owner's death."""
        self._death.check_store()
        return MortalLease(await self._store.lease(ttl_ms), self._death)

    def watch(self, prefix: str, from_revision: int) -> "MortalWatch":
        """As the port says; the dead and those who are cut off hear of nothing."""
        return MortalWatch(self._store.watch(prefix, from_revision), self._death)

    async def close(self) -> None:
        """The store is not this node's."""


class MortalLease:
    """A lease, as its owner sees it."""

    def __init__(self, lease: Lease, death: Death) -> None:
        self._lease, self._death = lease, death

    @property
    def id(self) -> LeaseId:
        """What a transaction binds puts to."""
        return self._lease.id

    async def keep_alive(self) -> None:
        """As the port says, for the living."""
        self._death.check_store()
        await self._lease.keep_alive()

    async def revoke(self) -> None:
        """As the port says; the dead give nothing up."""
        self._death.check_store()
        await self._lease.revoke()


class MortalWatch:
    """A watch, as its owner sees it."""

    def __init__(self, watch: Watch, death: Death) -> None:
        self._watch, self._death = watch, death

    def __aiter__(self) -> "MortalWatch":
        return self

    async def __anext__(self) -> Change:
        """As the port says; what comes while the store is out of reach comes afterwards."""
        change = await self._watch.__anext__()
        await self._death.until_in_reach()
        return change

    def close(self) -> None:
        """As the port says."""
        self._watch.close()
