"""A streaming query that writes into a sink, on a Spark that has everything go wrong.

Drivers die, or sleep while others take their place; tasks are repeated, speculatively too, under
numbers that others have, and wake up late; commits fail without anybody knowing what they did.  In
the end one more driver runs undisturbed: then every row of every batch is there once, and nothing
is left open.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from random import Random
from typing import Any

from tests.simulation.sink_broker import BrokenPromiseError, Broker
from tests.simulation.sink_processes import SINK, Faults, Process, TaskProducer, steps_of
from waystation.model.errors import ConcurrentTransactionsError, WaystationError
from waystation.spark.sink_state import Attempt, Task
from waystation.spark.sink_steps import Dropped, SinkSteps, TaskMessage
from waystation.testing.virtual_time import virtual_loop
from waystation.transactions.settings import TransactionSettings

QUERY = "q"
TASK_S = 12.0
COMMIT_S = 25.0
ATTEMPTS = 4
LONGEST_S = 400.0


class Life:
    """One life of a query, by the luck of its seed."""

    def __init__(self, seed: int, settings: TransactionSettings | None = None) -> None:
        self.chance = Random(seed)
        self.loop = virtual_loop()
        self.faults = Faults(self.chance)
        self.broker = Broker(self.loop.schedule, settings or TransactionSettings())
        self.broker.marker_delay_s = self._marker_delay_s
        self.batches = self.chance.randint(3, 5)
        self.partitions = self.chance.randint(1, 4)
        self.rows = self._rows()
        self.committed = 0
        """What Spark's checkpoint says: so many batches are done."""
        self.errors: Counter[str] = Counter()
        self.runs = 0
        self._slow_markers = self.chance.random() < 0.3
        self._loses_coordinators = self.chance.random() < 0.3
        self._tasks: list[asyncio.Task[Any]] = []

    def run(self) -> None:
        """Live, and check what is there in the end."""
        living = self.loop.create_task(self._live())
        while not living.done():
            assert self.loop.schedule.step(), "nothing is left to happen"
            if self.broker.broken:
                raise BrokenPromiseError(self.broker.broken[0])
        living.result()
        expected = Counter(row for rows in self.rows.values() for row in rows)
        found = self.broker.visible + Counter(self.broker.lost_by_limit)
        if found != expected:
            lost, more = expected - found, found - expected
            raise BrokenPromiseError(f"lost {sorted(lost)}, too many {sorted(more)}")
        if self.broker.settings.transaction_prepared_max_ms < 0:
            for name in ("PreparedRowsGoneError", "DecidedRowsMissingError"):
                if self.errors[name]:
                    raise BrokenPromiseError(f"somebody aborted what counts: {name}")
        if left := [name for name in self.broker.listed() if name.startswith("waystation")]:
            raise BrokenPromiseError(f"left open: {left}")

    # --- fate -----------------------------------------------------------------------------------

    async def _live(self) -> None:
        fate = self._spawn(self._replace_coordinators())
        for _ in range(self.chance.randint(1, 5)):
            driver = self._spawn(self._drive())
            # Who starts the next one does not always look whether the last one is gone.
            await asyncio.wait([driver], timeout=self.chance.choice((1.0, 10.0, 60.0)))
        await asyncio.sleep(self.chance.choice((0.0, 5.0, 60.0)))
        self.faults.none()
        await self._everybody_ends()
        self.batches += 1
        self.rows |= {(self.batches - 1, one): [f"last.{one}"] for one in range(self.partitions)}
        await self._patiently(self._drive())
        if self.committed < self.batches:
            raise BrokenPromiseError(f"stuck at batch {self.committed}: {dict(self.errors)}")
        fate.cancel()
        await asyncio.sleep(1.0)  # for the markers

    async def _everybody_ends(self) -> None:
        """Let those wake up who sleep; who is dead stays dead."""
        await asyncio.sleep(LONGEST_S)

    async def _patiently(self, driver: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(LONGEST_S):
                await driver
        except TimeoutError:
            raise BrokenPromiseError("the last driver does not come to an end") from None

    async def _replace_coordinators(self) -> None:
        while self._loses_coordinators:
            await asyncio.sleep(self.chance.uniform(0.5, 10.0))
            self.broker.reload()

    def _marker_delay_s(self) -> float:
        return self.chance.uniform(0.0, 0.3 if self._slow_markers else 0.003)

    def _rows(self) -> dict[tuple[int, int], list[str]]:
        """For each batch and partition; some have none."""
        return {
            (batch, one): [
                f"{batch}.{one}.{number}" for number in range(self.chance.choice((0, 1, 2, 3)))
            ]
            for batch in range(self.batches)
            for one in range(self.partitions)
        }

    def _spawn(self, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(coro)
        self._tasks.append(task)
        return task

    def _process(self, luck: float | None = None) -> Process:
        """Some have no luck at all, so that others meet what they leave half done."""
        if luck is None:
            luck = self.chance.choice((0.15, 1.0, 1.0, 3.0))
        return Process(self.broker, self.chance, self.faults, luck)

    # --- the driver -----------------------------------------------------------------------------

    async def _drive(self) -> None:
        """One run of the query: from the checkpoint on, until something fails."""
        self.runs += 1
        run, process = f"run-{self.runs}", self._process()
        batch = self.committed
        while batch < self.batches:
            await process.survive()
            if not await self._write_batch(run, batch):
                return
            await process.survive()
            # Two drivers with one checkpoint: Spark notices most of the time.
            if batch < self.committed and self.chance.random() < 0.5:
                return
            batch += 1
            self.committed = max(self.committed, batch)

    async def _write_batch(self, run: str, batch: int) -> bool:
        attempt = Attempt(SINK, QUERY, run, batch)
        parts = [one for one in range(self.partitions) if self.rows[batch, one]]
        results = await asyncio.gather(*(self._write_part(attempt, one) for one in parts))
        messages = [one for one in results if isinstance(one, TaskMessage)]
        if len(messages) == len(parts) and await self._commit(messages):
            return True
        await self._bounded(self._abort(messages), COMMIT_S)
        return False

    async def _commit(self, messages: list[TaskMessage]) -> bool:
        process = self._process(self.chance.choice((0.05, 0.2, 1.0, 3.0)))
        done = await self._bounded(self._steps(process).commit(messages), COMMIT_S)
        if self.chance.random() < 0.1:  # once more, as who lost the answer would
            again = self._steps(self._process()).commit(messages)
            done = await self._bounded(again, COMMIT_S)
        return done is _DONE

    async def _abort(self, messages: list[TaskMessage]) -> None:
        await self._steps(self._process()).abort(messages)

    async def _write_part(self, attempt: Attempt, partition: int) -> object:
        """Let tasks try, until one of them has written the part."""
        number = 0
        for _ in range(ATTEMPTS):
            tasks = [self._spawn(self._told(self._task(attempt, Task(partition, number))))]
            if self.chance.random() < 0.15:  # speculation
                number += 1
                tasks.append(self._spawn(self._told(self._task(attempt, Task(partition, number)))))
            await asyncio.wait(tasks, timeout=TASK_S, return_when=asyncio.FIRST_COMPLETED)
            done = [one for one in tasks if one.done()]
            for one in tasks:
                if not one.done() and self.chance.random() < 0.5:
                    one.cancel()  # killed; the others live on unseen
            for one in done:
                if isinstance(one.result(), TaskMessage):
                    return one.result()
            # A stage that is repeated counts its attempts anew.
            number = 0 if self.chance.random() < 0.2 else number + 1
        return None

    # --- tasks ----------------------------------------------------------------------------------

    async def _task(self, attempt: Attempt, task: Task) -> TaskMessage:
        assert attempt.batch is not None
        process = self._process()
        steps, rows = self._steps(process), self.rows[attempt.batch, task.partition]
        admitted = await steps.admit(attempt, task)
        if isinstance(admitted, Dropped):
            return admitted.message(len(rows))
        for _ in range(3):
            admitted = await steps.make_way(admitted)
            producer = TaskProducer(process, admitted.transactional_id)
            try:
                await producer.start()
                break
            except ConcurrentTransactionsError:
                continue
        try:
            half = len(rows) // 2
            for part in filter(None, (rows[:half], rows[half:])):
                await producer.write(part)
            prepared = await producer.prepare()
            return await steps.written(admitted, prepared, len(rows))
        except WaystationError:
            await producer.abort()
            raise

    def _steps(self, process: Process) -> SinkSteps:
        return steps_of(process, self.loop.schedule, self.chance)

    async def _told(self, work: Coroutine[Any, Any, Any]) -> object:
        """What ``work`` gives, or the error it ends with; a bug of ours ends the life."""
        try:
            given = await work
            return _DONE if given is None else given
        except WaystationError as error:
            self.errors[type(error).__name__] += 1
            return error

    async def _bounded(self, work: Coroutine[Any, Any, Any], patience_s: float) -> object:
        """The same, or nothing if it takes too long; then it goes on unseen."""
        task = self._spawn(self._told(work))
        await asyncio.wait([task], timeout=patience_s)
        return task.result() if task.done() else None


_DONE = object()
