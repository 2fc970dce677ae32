"""Processes that ask a cluster about a sink, and all that can befall them on the way.

A request is lost, or its answer; it comes late, or once more much later.  A process dies before or
after any request, or sleeps for a while and goes on as if nothing had happened.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from tests.simulation.sink_broker import SINK, Broker, Who
from tests.transactions.coordinator import Pending
from waystation.client.transactor import PreparedTransaction
from waystation.model.errors import RequestTimedOutError, WaystationError
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.spark.ledger import Ledger, NotWrittenError
from waystation.spark.sink_state import SinkState, mutex_id, task_of
from waystation.spark.sink_steps import OpenTransaction, SinkSteps
from waystation.testing.virtual_time import Schedule, VirtualClock

PATIENCE_MS = 15_000
_TRIES = 6
_TIMEOUT_S = 0.4
_POLL_S = 0.01


class Faults:
    """How bad the world is; ``none`` after a while."""

    def __init__(self, chance: Random) -> None:
        self.crash = chance.choice((0.0, 0.005, 0.02))
        self.pause = chance.choice((0.0, 0.01, 0.04))
        self.lost = chance.choice((0.0, 0.02, 0.1))
        self.repeated = chance.choice((0.0, 0.02, 0.1))
        self.longest_pause_s = chance.choice((1.0, 6.0, 30.0))

    def none(self) -> None:
        self.crash = self.pause = self.lost = self.repeated = 0.0


class Process:
    """One that may die, or sleep, at every request it makes; ``luck`` makes that rarer."""

    def __init__(self, broker: Broker, chance: Random, faults: Faults, luck: float = 1.0) -> None:
        self.broker, self._chance, self._faults = broker, chance, faults
        self._luck = luck
        self.dead = False

    async def ask(self, request: Callable[[], Any]) -> Any:
        """Send the request until it is answered; raises the error that is the answer."""
        for _ in range(_TRIES):
            await self.survive()
            await asyncio.sleep(self._chance.uniform(0.0005, 0.004))
            lost = self._chance.random() < self._faults.lost
            if lost and self._chance.random() < 0.5:
                await asyncio.sleep(_TIMEOUT_S)
                continue
            if self._chance.random() < self._faults.repeated:
                later_s = self._chance.uniform(0.0, 4.0)
                asyncio.get_running_loop().call_later(later_s, _ignore, request)
            answer = await self._answer(request)
            await self.survive()
            if lost or answer is _NONE:
                await asyncio.sleep(_TIMEOUT_S)
                continue
            await asyncio.sleep(self._chance.uniform(0.0005, 0.004))
            if isinstance(answer, WaystationError):
                raise answer
            return answer
        raise RequestTimedOutError("nobody answers")

    async def survive(self) -> None:
        """Go on, after a sleep perhaps, or never."""
        if not self.dead and self._chance.random() * self._luck < self._faults.crash:
            self.dead = True
        if self.dead:
            await for_ever()
        if self._chance.random() * self._luck < self._faults.pause:
            await asyncio.sleep(self._chance.uniform(0.05, self._faults.longest_pause_s))
            if self.dead:
                await for_ever()

    async def _answer(self, request: Callable[[], Any]) -> Any:
        try:
            answer = request()
        except WaystationError as error:
            return error
        if not isinstance(answer, Pending):
            return answer
        for _ in range(int(3 / _POLL_S)):
            if not answer.waits:
                return answer.answers[0]
            await asyncio.sleep(_POLL_S)
        return _NONE


_NONE = object()


def _ignore(request: Callable[[], Any]) -> None:
    """A request that comes once more; nobody waits for the answer."""
    try:
        request()
    except WaystationError:
        return


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


class Shelf:
    """The sink's record, asked for as ``ledger_topic.py`` asks for it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._who: Who | None = None

    async def read(self, sink: str) -> SinkState | None:
        broker = self._process.broker
        end = await self._process.ask(lambda: len(broker.ledger))
        while not await self._process.ask(lambda: broker.is_stable(end)):
            await asyncio.sleep(0.02)
        return broker.state_before(end)

    async def take(self, sink: str) -> None:
        broker = self._process.broker
        try:
            self._who = tuple(await self._process.ask(lambda: broker.initialise(mutex_id(sink))))
        except WaystationError as error:
            raise NotWrittenError(str(error)) from error

    async def holder(self, sink: str) -> object:
        broker = self._process.broker
        return await self._process.ask(lambda: broker.describe(mutex_id(sink)))

    async def write(self, sink: str, before: SinkState | None, after: SinkState | None) -> None:
        broker, name, who = self._process.broker, mutex_id(sink), self._who
        assert who is not None, "a write without the mutex"
        self._who = None
        try:
            await self._process.ask(lambda: broker.write_state(name, who, after))
            self._who = tuple(await self._process.ask(lambda: broker.end_any(name, who, True)))
        except WaystationError as error:
            raise NotWrittenError(str(error)) from error


class Coordinators:
    """The transactions, asked for as ``sink_cluster.py`` asks for them."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def open_of(self, sink: str) -> list[OpenTransaction]:
        names = await self._process.ask(self._process.broker.listed)
        mine = [name for name in names if task_of(sink, name)]
        found = [await self.open_under(name) for name in mine]
        return [one for one in found if one is not None]

    async def open_under(self, transactional_id: str) -> OpenTransaction | None:
        broker = self._process.broker
        found = await self._process.ask(lambda: broker.describe(transactional_id))
        if found is None or found[0] not in ("Ongoing", "Prepared"):
            return None
        state, who = found
        return OpenTransaction(PreparedTransaction(transactional_id, *who), state == "Prepared")

    async def outcome(self, transaction: PreparedTransaction) -> str:
        broker = self._process.broker
        answer = await self._process.ask(lambda: broker.outcome_of(transaction))
        assert isinstance(answer, str)
        return answer

    async def end(self, transaction: PreparedTransaction, *, commit: bool) -> None:
        broker = self._process.broker
        name, *who = transaction
        producer_id, epoch = ProducerId(who[0]), ProducerEpoch(who[1])
        await self._process.ask(lambda: broker.end_any(name, (producer_id, epoch), commit))


def steps_of(process: Process, schedule: Schedule, chance: Random) -> SinkSteps:
    """The real steps, over a process that may die."""
    ledger = Ledger(Shelf(process), VirtualClock(schedule), chance, PATIENCE_MS)
    return SinkSteps(ledger, Coordinators(process))


class TaskProducer:
    """Writes the rows of a task in one transaction, and prepares it."""

    def __init__(self, process: Process, name: str) -> None:
        self._process, self._name = process, name
        self._who: Who | None = None
        self._sequence = 0

    async def start(self) -> None:
        broker, name = self._process.broker, self._name
        self._who = tuple(await self._process.ask(lambda: broker.initialise(name)))

    async def write(self, rows: list[str]) -> None:
        broker, name, who, sequence = self._process.broker, self._name, self._who, self._sequence
        assert who is not None, "a write before the start"
        self._sequence += 1
        await self._process.ask(lambda: broker.write_rows(name, who, sequence, rows))

    async def prepare(self) -> PreparedTransaction:
        broker, name, who = self._process.broker, self._name, self._who
        assert who is not None, "a transaction before the start"
        await self._process.ask(lambda: broker.prepare_rows(name, who))
        return PreparedTransaction(name, *who)

    async def abort(self) -> None:
        broker, name, who = self._process.broker, self._name, self._who
        if who is not None:
            await self._process.ask(lambda: broker.end_any(name, who, False))


__all__ = [
    "SINK",
    "Coordinators",
    "Faults",
    "Process",
    "Shelf",
    "TaskProducer",
    "for_ever",
    "steps_of",
]
