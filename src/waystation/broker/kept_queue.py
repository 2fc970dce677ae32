"""The state of a queue that this broker leads and no client reads, kept by the share coordinator.

1. Nothing counts as stored before the share coordinator has said so, under this leader's epoch.
2. A write whose answer was lost is repeated; after one that was refused the queue is of no use.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from waystation.client.errors import is_retriable
from waystation.model.errors import InvalidRequestError, WaystationError
from waystation.model.machines import Waiter
from waystation.model.offsets import Offset
from waystation.runtime.timers import Timer, Timers
from waystation.sharing.leader import QueueLeader
from waystation.sharing.persister import Initialize, Persister, Read, StateRead, Write
from waystation.sharing.share_partition import SharePartition

__all__ = ["KeptQueue", "read_state_of"]

Q = TypeVar("Q", bound=SharePartition)

_RETRY_S: Final = 0.1


async def read_state_of(persister: Persister, read: Read, *, begin: bool) -> StateRead | None:
    """What the leader before has stored; ``None`` if it never began, and does not now."""
    if begin:
        start = Initialize(read.queue, 0, Offset(0))
        await _answer(lambda to: persister.initialize(start, to))
    try:
        state = await _answer(lambda to: persister.read(read, to))
    except InvalidRequestError:
        return None
    assert isinstance(state, StateRead), f"{read.queue} was told {state!r}"
    return state


class KeptQueue(Generic[Q]):
    """A queue's leader, and who waits for what it says to be stored."""

    def __init__(
        self,
        leader: QueueLeader[Q],
        persister: Persister,
        timers: Timers,
        *,
        stored: Callable[[], None],
        lost: Callable[[WaystationError], None],
    ) -> None:
        """``stored`` hears of each write, ``lost`` that another leader is believed."""
        self.leader = leader
        self._persister = persister
        self._timers = timers
        self._stored = stored
        self._lost = lost
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._retry: Timer | None = None
        self._closed = False

    @property
    def queue(self) -> Q:
        """The queue itself."""
        return self.leader.queue

    def write(self) -> None:
        """Have what is due written, unless a write is under way."""
        if not self._closed:
            self._go_on(self.leader.due())

    def _go_on(self, write: Write | None) -> None:
        if write is not None and not self._closed:
            self._persister.write(write, self._wrote)

    async def until_stored(self, version: int) -> None:
        """Return once the version is stored; raises if it never will be."""
        if self.queue.stored >= version:
            return
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((version, told))
        self.write()
        await told

    def close(self, error: WaystationError) -> None:
        """Write nothing more; whoever waits is told."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        for _, told in self._waiting:
            if not told.done():
                told.set_exception(error)
        self._waiting.clear()

    def _wrote(self, answer: object) -> None:
        if self._closed:
            return
        error = answer if isinstance(answer, WaystationError) else None
        steps = self.leader.wrote(error)
        if error is not None and (self.leader.fenced_by is not None or not is_retriable(error)):
            self._lost(error)
        elif error is not None:
            self._retry = self._timers.call_later(_RETRY_S, self.write)
        else:
            self._go_on(steps.write)
            self._told_stored()

    def _told_stored(self) -> None:
        stored = self.queue.stored
        told = [one for version, one in self._waiting if version <= stored]
        self._waiting = [one for one in self._waiting if one[0] > stored]
        for one in told:
            if not one.done():
                one.set_result(None)
        self._stored()


async def _answer(ask: Callable[[Waiter], None]) -> object:
    """The answer to a command, or what is raised instead."""
    told: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def hear(answer: object) -> None:
        if not told.done():
            told.set_result(answer)

    ask(hear)
    answer = await told
    if isinstance(answer, WaystationError):
        raise answer
    return answer
