"""Many who wait for messages of one queue, and one request to each leader on behalf of all.

A call that waits stands in the line of one leader at a time.  The leader is asked for all that its
line wants together, waits for the first message, and what comes goes to the line from the front.
Whoever got nothing goes on to another leader's line.

1. However many wait, each leader holds one request.
2. Leaders are never asked for more messages than those in their line want, so that none is
   delivered, and counted, for nobody: when one of them leaves, the request is given up and made
   anew for the others.  What came in that very moment goes back.
3. A call ends at its time, with nothing, once the leader it stands at has answered.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

from waystation.client.errors import error_of, is_retriable
from waystation.client.queue_requests import Place
from waystation.client.receipt_acquiring import Acquiring
from waystation.client.receipt_descriptions import HeldMessage
from waystation.client.receipt_settling import ReceiptSettling
from waystation.client.router import Router
from waystation.model.errors import ErrorCode, WaystationError
from waystation.model.ids import NodeId
from waystation.runtime.tasks import Tasks
from waystation.sharing.states import RELEASE

__all__ = ["Waiting"]

_TURN_MS: Final = 100
"""How long a call stands at one leader of several."""
_HOLD_MS: Final = 10_000
_MOST: Final = 10_000


class _Caller:
    """One call that waits."""

    __slots__ = ("answer", "asked", "ends_at", "failures", "most", "trouble")

    def __init__(self, most: int, ends_at: float) -> None:
        self.most, self.ends_at = most, ends_at
        self.answer: asyncio.Future[list[HeldMessage]] = asyncio.get_running_loop().create_future()
        self.trouble: WaystationError | None = None
        self.failures = 0
        self.asked: NodeId | None = None
        """Who is asked on its behalf at the moment."""

    @property
    def came(self) -> bool:
        """Whether there are messages for it."""
        done = self.answer.done() and not self.answer.cancelled()
        return done and self.answer.exception() is None

    def end(self) -> None:
        """Its time is over: nothing came, or nobody could be asked."""
        if self.answer.done():
            return
        if self.trouble is None:
            self.answer.set_result([])
        else:
            self.answer.set_exception(self.trouble)


class Waiting:
    """The lines of one queue."""

    def __init__(self, router: Router, acquiring: Acquiring, settling: ReceiptSettling) -> None:
        self._router, self._acquiring, self._settling = router, acquiring, settling
        self._lines: dict[NodeId, dict[_Caller, None]] = {}
        self._callers: dict[_Caller, None] = {}
        self._given_up: set[NodeId] = set()
        self._tasks = Tasks()
        self._loop = asyncio.get_running_loop()
        self._turn = 0

    async def close(self) -> None:
        """Nobody waits any more."""
        await self._tasks.aclose()
        for one in self._callers:
            one.end()

    async def wait(self, most: int, ends_at: float) -> list[HeldMessage]:
        """Up to ``most`` messages, as soon as there is one; none at ``ends_at``."""
        caller = _Caller(most, ends_at)
        self._callers[caller] = None
        late = self._loop.call_at(ends_at, self._late, caller)
        try:
            await self._stand(caller, None)
            return await caller.answer
        except asyncio.CancelledError:
            if caller.came:
                self.give_back(caller.answer.result())
            elif caller.asked is not None:
                self._given_up.add(caller.asked)
                self._acquiring.give_up(caller.asked)
            raise
        finally:
            late.cancel()
            caller.answer.cancel()
            self._leave(caller)
            del self._callers[caller]

    def give_back(self, held: Sequence[HeldMessage]) -> None:
        """Nobody wants them any more: let others have them."""

        async def release() -> None:
            with suppress(WaystationError):  # then they come again when their locks are over
                await self._settling.settle([one.receipt for one in held], RELEASE)

        self._tasks.spawn(release(), "queue-give-back")

    # --- lines ----------------------------------------------------------------------------------

    def _late(self, caller: _Caller) -> None:
        """Who still stands in a line then is done; who is asked for hears soon."""
        if self._leave(caller):
            caller.end()

    def _leave(self, caller: _Caller) -> bool:
        return any(line.pop(caller, 0) is None for line in self._lines.values())

    async def _stand(self, caller: _Caller, after: NodeId | None) -> None:
        """Let a call stand in the line of another leader than ``after``, where fewest stand.

        While nobody leads it looks again, until its time is over.
        """
        while not caller.answer.done():
            try:
                leaders = await self._acquiring.leaders()
            except WaystationError as error:
                if not is_retriable(error):
                    raise
                leaders, caller.trouble = {}, error
            if leaders:
                self._line_up(caller, self._chosen(leaders, after))
                return
            if self._loop.time() >= caller.ends_at:
                caller.trouble = caller.trouble or error_of(
                    ErrorCode.LEADER_NOT_AVAILABLE, "the queue"
                )
                caller.end()
                return
            caller.failures += 1
            await asyncio.sleep(self._router.backoff.delay_s(caller.failures))

    def _chosen(self, leaders: Collection[NodeId], after: NodeId | None) -> NodeId:
        self._turn += 1
        ordered = sorted(leaders)
        begin = self._turn % len(ordered)
        return min(
            ordered[begin:] + ordered[:begin],
            key=lambda one: (one == after, len(self._lines.get(one, ()))),
        )

    def _line_up(self, caller: _Caller, leader: NodeId) -> None:
        line = self._lines.get(leader)
        if line is not None:
            line[caller] = None
            return
        self._lines[leader] = {caller: None}
        self._tasks.spawn(self._serve(leader), f"queue-line {leader}")

    async def _serve(self, leader: NodeId) -> None:
        """Ask a leader for as long as somebody stands in its line."""
        line = self._lines[leader]
        try:
            while line:
                callers = list(line)
                line.clear()
                await self._ask(leader, callers)
        finally:
            del self._lines[leader]

    async def _ask(self, leader: NodeId, callers: Sequence[_Caller]) -> None:
        for one in callers:
            one.asked = leader
        self._given_up.discard(leader)
        found, trouble = list[HeldMessage](), None
        try:
            leaders = await self._acquiring.leaders()
            if leader in leaders:
                found = await self._acquired(leader, leaders[leader], callers, len(leaders))
        except WaystationError as error:
            trouble = error
        finally:
            for one in callers:
                one.asked = None
        if leader in self._given_up:
            self._hand_out(found, callers)
            await self._go_on(None, callers)
        elif trouble is not None:
            await self._failed(leader, callers, trouble)
        else:
            for one in callers:
                one.trouble, one.failures = None, 0
            self._hand_out(found, callers)
            await self._go_on(leader, callers)

    async def _acquired(
        self,
        leader: NodeId,
        places: Sequence[Place],
        callers: Sequence[_Caller],
        leaders: int,
    ) -> list[HeldMessage]:
        left_ms = int((min(one.ends_at for one in callers) - self._loop.time()) * 1_000)
        wait_ms = max(1, min(left_ms, _HOLD_MS if leaders == 1 else _TURN_MS))
        most = min(sum(one.most for one in callers), _MOST)
        return await self._acquiring.acquire(leader, places, most, wait_ms)

    def _hand_out(self, found: list[HeldMessage], callers: Sequence[_Caller]) -> None:
        at = 0
        for one in callers:
            if at < len(found) and not one.answer.done():
                one.answer.set_result(found[at : at + one.most])
                at += one.most
        if at < len(found):
            self.give_back(found[at:])

    async def _go_on(self, leader: NodeId | None, callers: Sequence[_Caller]) -> None:
        """Whoever got nothing stands at the next leader, or is done."""
        left = [one for one in callers if not one.answer.done()]
        try:
            leaders = await self._acquiring.leaders() if left else {}
        except WaystationError:
            leaders = {}
        if leader is not None and list(leaders) == [leader]:
            self._stay(leader, left)
            return
        for one in left:
            if one.answer.done():
                continue
            if self._loop.time() >= one.ends_at:
                one.end()
            elif leaders:
                self._line_up(one, self._chosen(leaders, leader))
            else:
                self._tasks.spawn(self._stand_again(one, leader), "queue-line-next")

    def _stay(self, leader: NodeId, callers: Sequence[_Caller]) -> None:
        """There is no other leader: go on in front of those who came meanwhile.

        HOT: once per answer, for all who wait; it is asked for them again and again.
        """
        now, line = self._loop.time(), self._lines[leader]
        came_later = list(line)
        line.clear()
        for one in callers:
            if one.ends_at > now and not one.answer.done():
                line[one] = None
            else:
                one.end()
        line.update(dict.fromkeys(came_later))

    async def _stand_again(self, caller: _Caller, after: NodeId | None) -> None:
        try:
            await self._stand(caller, after)
        except WaystationError as error:
            caller.trouble = error
            caller.end()

    async def _failed(
        self, leader: NodeId, callers: Sequence[_Caller], error: WaystationError
    ) -> None:
        """A leader could not be asked: another may be, or the same a little later."""
        for one in callers:
            one.trouble = error
            one.failures += 1
            if not is_retriable(error):
                one.end()
        self._router.want_refresh()
        await asyncio.sleep(self._router.backoff.delay_s(max(one.failures for one in callers)))
        await self._go_on(leader, callers)
