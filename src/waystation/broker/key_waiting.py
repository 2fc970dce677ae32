"""Those who wait for a message of a key, and what wakes them.

A partition may take thousands of messages a second while thousands wait, each for a key of its
own.  So not everybody is woken by each message: the index is brought up to date once for all, which
tells the hashes that are new, and only who waits for one of those looks again.  Who knows of a
message that is there but not committed yet waits for that alone.
"""

import asyncio
from collections.abc import Callable

from waystation.model.offsets import NO_OFFSET
from waystation.partition.partition import Partition

__all__ = ["KeyWaiters"]

Waiting = dict[int, list["asyncio.Future[None]"]]


class KeyWaiters:
    """Who waits at one partition."""

    __slots__ = ("_begin", "_for_any", "_partition", "by_hash")

    def __init__(self, partition: Partition, begin: Callable[[Partition], None]) -> None:
        """``begin`` has the index brought up to date, soon, and then ``heard`` called."""
        self._partition = partition
        self._begin = begin
        self._for_any: list[asyncio.Future[None]] = []
        self.by_hash: Waiting = {}

    def __len__(self) -> int:
        return len(self._for_any) + sum(map(len, self.by_hash.values()))

    def add(self, wanted: int | None) -> "asyncio.Future[None]":
        """Resolved once the index has something new of the hash; without one, by any change."""
        if not len(self):
            self._partition.read_waiters.add(self._changed)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listed(wanted).append(future)
        return future

    def remove(self, wanted: int | None, future: "asyncio.Future[None]") -> None:
        """Wait no longer; harmless if that is so already."""
        future.cancel()
        listed = self._listed(wanted)
        if future in listed:
            listed.remove(future)
        if wanted is not None and not listed:
            self.by_hash.pop(wanted, None)
        if not len(self):
            self._partition.read_waiters.remove(self._changed)

    def heard(self, hashes: set[int]) -> None:
        """The index has new messages with these hashes."""
        for one in hashes:
            _wake(self.by_hash.get(one, []))

    def wake_all(self) -> None:
        """Let everybody look again."""
        for listed in (self._for_any, *list(self.by_hash.values())):
            _wake(listed)

    def _changed(self) -> None:
        """HOT: once per turn of the loop in which something was committed."""
        if self._partition.mark == NO_OFFSET or self._partition.state is None:
            self.wake_all()
            return
        _wake(self._for_any)
        if self.by_hash:
            self._begin(self._partition)

    def _listed(self, wanted: int | None) -> "list[asyncio.Future[None]]":
        return self._for_any if wanted is None else self.by_hash.setdefault(wanted, [])


def _wake(futures: "list[asyncio.Future[None]]") -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
