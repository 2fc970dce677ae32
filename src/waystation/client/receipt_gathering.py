"""What leaders of a queue have now, for many callers by one request.

Callers who ask one leader in one turn of the loop, or while it is asked already, are served by one
request for all that they want together, in the order in which they came.

1. No more messages are asked for than callers want, so that none is delivered for nobody; what came
   for a caller who has gone meanwhile goes to the next, or back.
2. A caller hears that there is nothing only from a request that found nothing for it: one answer
   may be too small for what many want.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from waystation.client.errors import error_of
from waystation.client.receipt_acquiring import Acquiring
from waystation.client.receipt_descriptions import HeldMessage
from waystation.model.errors import ErrorCode, WaystationError
from waystation.model.ids import NodeId
from waystation.runtime.tasks import Tasks

__all__ = ["Gathering"]

_MOST: Final = 10_000


class _Caller:
    """One call that wants what there is."""

    __slots__ = ("answer", "most")

    def __init__(self, most: int, loop: asyncio.AbstractEventLoop) -> None:
        self.most = most
        self.answer: asyncio.Future[list[HeldMessage]] = loop.create_future()

    @property
    def came(self) -> bool:
        """Whether there are messages for it."""
        done = self.answer.done() and not self.answer.cancelled()
        return done and self.answer.exception() is None and bool(self.answer.result())


class Gathering:
    """Asks the leaders of one queue for all callers."""

    def __init__(
        self, acquiring: Acquiring, give_back: Callable[[Sequence[HeldMessage]], None]
    ) -> None:
        self._acquiring, self._give_back = acquiring, give_back
        self._callers: dict[NodeId, list[_Caller]] = {}
        self._tasks = Tasks()
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Ask nobody any more."""
        await self._tasks.aclose()

    async def take(self, leader: NodeId, most: int) -> list[HeldMessage]:
        """Up to ``most`` messages that a leader has now."""
        caller = _Caller(most, self._loop)
        waiting = self._callers.get(leader)
        if waiting is None:
            self._callers[leader] = [caller]
            self._tasks.spawn(self._serve(leader), f"queue-gathering {leader}")
        else:
            waiting.append(caller)
        try:
            return await caller.answer
        except asyncio.CancelledError:
            if caller.came:
                self._give_back(caller.answer.result())
            raise

    async def _serve(self, leader: NodeId) -> None:
        """Ask a leader for as long as there are callers."""
        callers = self._callers[leader]
        try:
            while callers:
                asking = callers[:]
                callers.clear()
                callers[:0] = await self._asked(leader, asking)
        finally:
            del self._callers[leader]
            gone = error_of(ErrorCode.NETWORK_EXCEPTION, "the queue was closed")
            _fail(callers, gone)

    async def _asked(self, leader: NodeId, callers: list[_Caller]) -> list[_Caller]:
        """Serve callers; who got nothing although others did is to be asked for again."""
        try:
            found = await self._acquired(leader, min(sum(one.most for one in callers), _MOST))
        except WaystationError as error:
            _fail(callers, error)
            return []
        except asyncio.CancelledError:
            _fail(callers, error_of(ErrorCode.NETWORK_EXCEPTION, "the queue was closed"))
            raise
        at, left = 0, []
        for one in callers:
            if one.answer.done():
                continue
            if at < len(found) or not found:
                one.answer.set_result(found[at : at + one.most])
                at += one.most
            else:
                left.append(one)
        if at < len(found):
            self._give_back(found[at:])
        return left

    async def _acquired(self, leader: NodeId, most: int) -> list[HeldMessage]:
        leaders = await self._acquiring.leaders()
        if leader not in leaders:
            raise error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {leader}")
        return await self._acquiring.acquire(leader, leaders[leader], most)


def _fail(callers: Sequence[_Caller], error: WaystationError) -> None:
    for one in callers:
        if not one.answer.done():
            one.answer.set_exception(error)
