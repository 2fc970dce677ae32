"""Reads and changes the records of sinks, one change at a time for each.

A record lies in the compacted topic ``__waystation_sinks``.  Whoever changes it first takes the
sink's *mutex*: it initialises a producer with the sink's own transactional id, which shuts out
everybody who had it before, in the middle of a change or not.  Then it reads, and writes in a
transaction under that id.  Promises:

1. what ``change`` wrote follows immediately upon what it read: no change is lost;
2. ``read`` shows every change that was finished before it began;
3. an answer that is lost is found out by reading again: the change that is asked for must give
   the state itself where it has happened already.

The topic is asked for by ``ledger_topic.py``; a simulation has another ``Shelf``.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final, Protocol

from waystation.model.error_codes import ErrorCode
from waystation.model.errors import WaystationError
from waystation.runtime.clock import Clock
from waystation.spark.sink_errors import LedgerBusyError, SinkError
from waystation.spark.sink_state import SinkState

__all__ = ["Change", "Ledger", "NotWrittenError", "Shelf"]

Change = Callable[[SinkState | None], SinkState | None]
"""The state as it shall be; itself if it is so already.  Raises what refuses it."""

_FIRST_QUIET_S: Final = 0.02
_LONGEST_QUIET_S: Final = 2.0
_PATIENT_TIMES: Final = 5
_GLANCE_S: Final = 0.5


class NotWrittenError(WaystationError):
    """A change was refused, or nobody knows whether it happened; another try may succeed."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class Shelf(Protocol):
    """Where the records lie."""

    async def read(self, sink: str) -> SinkState | None:
        """The record, with all that was written before this was asked; ``None`` if none is."""

    async def take(self, sink: str) -> None:
        """Take the mutex, and shut out whoever has it."""

    async def holder(self, sink: str) -> object:
        """Who has the mutex: another value whenever somebody took it, or has written."""

    async def write(self, sink: str, before: SinkState | None, after: SinkState | None) -> None:
        """Write the record in place of ``before``, or with ``None`` remove it.

        ``NotWrittenError`` unless it is known to be written while nobody else has the mutex.
        """


class Ledger:
    """The records of sinks, as one process sees them."""

    def __init__(self, shelf: Shelf, clock: Clock, chance: Random, patience_ms: int) -> None:
        self._shelf, self._clock, self._chance = shelf, clock, chance
        self._patience_ms = patience_ms
        self._held: dict[str, SinkState | None] = {}

    async def read(self, sink: str) -> SinkState | None:
        """The sink's record, as it is at this moment or after it."""
        return await self._shelf.read(sink)

    async def change(self, sink: str, change: Change) -> SinkState | None:
        """Change the record, and give it as it is then; raises what ``change`` refuses."""
        began_at, failures = self._clock.monotonic(), 0
        while True:
            try:
                if failures and (known := await self._done(sink, change)):
                    return known
                return await self._try(sink, change)
            except NotWrittenError as error:
                failures += 1
                waited_ms = int((self._clock.monotonic() - began_at) * 1_000)
                if waited_ms > self._patience_ms:
                    raise LedgerBusyError(sink, str(error), waited_ms) from error
            await self._let_others(sink, failures)

    async def _let_others(self, sink: str, failures: int) -> None:
        """Wait until nobody takes the mutex for a while, longer each time.

        Who takes it shuts out whoever has it.  Many who just tried again would keep each other
        from ever finishing; so each gives the last one time, and only goes on if that one had it.
        """
        quiet_s = min(_FIRST_QUIET_S * 2**failures, _LONGEST_QUIET_S)
        most, holder = _PATIENT_TIMES, await self._shelf.holder(sink)
        while most > 0:
            await asyncio.sleep(quiet_s * self._chance.uniform(0.5, 1.5))
            before, holder = holder, await self._shelf.holder(sink)
            most = most - 1 if holder != before else 0

    async def _done(self, sink: str, change: Change) -> SinkState | None:
        """The record, if somebody else has done meanwhile what was to be done.

        Whoever was shut out looks first: to try again would shut out others in their turn.  It
        looks for a moment only: behind the change of one who died nothing can be seen, and to
        take the mutex ends that.
        """
        try:
            async with asyncio.timeout(_GLANCE_S):
                state = await self._shelf.read(sink)
        except TimeoutError:
            return None
        return state if change(state) == state else None

    async def _try(self, sink: str, change: Change) -> SinkState | None:
        if sink in self._held:
            # Who still has the mutex knows the record.  Whether that is so, only writing tells:
            # what follows without it, nothing or a refusal, is found out from the record itself.
            before = self._held.pop(sink)
            with suppress(SinkError):
                if (after := change(before)) != before:
                    return await self._write(sink, before, after)
        await self._shelf.take(sink)
        before = await self._shelf.read(sink)
        after = change(before)
        return before if after == before else await self._write(sink, before, after)

    async def _write(
        self, sink: str, before: SinkState | None, after: SinkState | None
    ) -> SinkState | None:
        await self._shelf.write(sink, before, after)
        self._held[sink] = after
        return after
