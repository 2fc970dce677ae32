"""Plays Spark's part for a sink, without Spark: tasks, a driver, a checkpoint, and their deaths.

``python -m tests.spark.sink_player BOOTSTRAP SINK TOPIC CHECKPOINT BATCHES`` is a whole driver that
can be killed; the next one goes on from the checkpoint, as Spark does.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar
from uuid import uuid4

from waystation import Consumer, Producer
from waystation.client.transactor import PreparedTransaction
from waystation.model.errors import ConcurrentTransactionsError
from waystation.spark.sink_cluster import open_sink
from waystation.spark.sink_state import Attempt, Task
from waystation.spark.sink_steps import Admitted, Dropped, SinkSteps, TaskMessage

P = ParamSpec("P")
T = TypeVar("T")

PARTS, ROWS = 3, 5


class Point(Protocol):
    """Called between any two steps; whoever dies there raises."""

    def __call__(self, name: str) -> None: ...


def nowhere(name: str) -> None:
    """Nobody dies."""


class DiedError(BaseException):
    """A process was killed: nothing of it runs any more, not even what cleans up."""


def dying_at(point: str) -> Point:
    """Die there, the first time it is reached."""

    def reached(name: str) -> None:
        if name == point:
            raise DiedError(name)

    return reached


class Player:
    """One run of a query, from its checkpoint on."""

    def __init__(
        self, bootstrap: str, sink: str, topic: str, checkpoint: Path, point: Point = nowhere
    ) -> None:
        self._bootstrap, self._sink, self._topic = bootstrap, sink, topic
        self._checkpoint, self._point = checkpoint, point
        self._run = str(uuid4())

    async def play(self, batches: int) -> None:
        """All batches that are not done yet."""
        for batch in range(done(self._checkpoint), batches):
            await self.batch(batch)
            self._point("committed")
            written = self._checkpoint.with_suffix(".new")
            written.write_text(str(batch + 1))
            written.replace(self._checkpoint)

    async def batch(self, batch: int) -> None:
        """Every task, then the driver's commit in what is a process of its own."""
        attempt = Attempt(self._sink, "q", self._run, batch)
        tasks = (self.task(attempt, Task(one)) for one in range(PARTS))
        messages = await asyncio.gather(*tasks)
        async with open_sink(self._bootstrap) as steps:
            await self.watched(steps).commit(messages)

    async def task(self, attempt: Attempt, task: Task) -> TaskMessage:
        """What a task does that has rows."""
        async with open_sink(self._bootstrap) as steps:
            admitted = await steps.admit(attempt, task)
            self._point("admitted")
            if isinstance(admitted, Dropped):
                return admitted.message(ROWS)
            admitted, prepared = await self.prepare(steps, admitted)
            self._point("prepared")
            return await steps.written(admitted, prepared, ROWS)

    async def prepare(
        self, steps: SinkSteps, admitted: Admitted
    ) -> tuple[Admitted, PreparedTransaction]:
        """Write the rows of a task, and prepare them."""
        while True:
            admitted = await steps.make_way(admitted)
            producer = Producer(self._bootstrap, transactional_id=admitted.transactional_id)
            try:
                await producer.start()
                break
            except ConcurrentTransactionsError:
                await producer.close()
        try:
            transaction = await producer.transaction().__aenter__()
            batch, part = admitted.attempt.batch, admitted.task.partition
            for row in range(ROWS):
                transaction.submit(self._topic, f"{batch}.{part}.{row}", key=str(part))
            self._point("written")
            return admitted, await transaction.prepare()
        finally:
            await producer.close()

    def watched(self, steps: SinkSteps) -> SinkSteps:
        """Die between the steps of a commit, where the test wants it."""
        steps._check_prepared = self._around("looked at", steps._check_prepared)  # type: ignore[method-assign]
        steps._commit_all = self._around("ended", steps._commit_all, "decided")  # type: ignore[method-assign]
        steps._sweep = self._around("swept", steps._sweep, "noted")  # type: ignore[method-assign]
        return steps

    def _around(
        self, after: str, work: Callable[P, Coroutine[Any, Any, T]], before: str = ""
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        async def step(*args: P.args, **kwargs: P.kwargs) -> T:
            self._point(before)
            result = await work(*args, **kwargs)
            self._point(after)
            return result

        return step


POINTS = (
    "admitted",
    "written",
    "prepared",
    "looked at",
    "decided",
    "ended",
    "noted",
    "swept",
    "committed",
)


def done(checkpoint: Path) -> int:
    """How many batches are."""
    return int(checkpoint.read_text()) if checkpoint.exists() else 0


def expected(batches: int) -> dict[str, list[str]]:
    """By key, in order: what the topic shall show."""
    return {
        str(part): [f"{batch}.{part}.{row}" for batch in range(batches) for row in range(ROWS)]
        for part in range(PARTS)
    }


async def shown(bootstrap: str, topic: str, count: int) -> dict[str, list[str]]:
    """By key: what the topic shows to who reads what is committed, and nothing comes behind it."""
    found: dict[str, list[str]] = {str(part): [] for part in range(PARTS)}
    reading = Consumer(topics=topic, bootstrap=bootstrap, isolation="read_committed")
    async with reading as consumer, asyncio.timeout(30):
        left = count
        while left > 0:
            for message in await consumer.poll():
                found[(message.key or b"").decode()].append((message.value or b"").decode())
                left -= 1
        for message in await consumer.poll(100):
            found[(message.key or b"").decode()].append((message.value or b"").decode())
    return found


def main() -> None:
    bootstrap, sink, topic, checkpoint, batches = sys.argv[1:]
    asyncio.run(Player(bootstrap, sink, topic, Path(checkpoint)).play(int(batches)))


if __name__ == "__main__":
    main()
