"""Writers, a processor and readers at work on topics of their own, all of it written down.

What they wrote down is a history (``history.py``) for the checker (``checker.py``).  Whatever the
cluster does meanwhile, be it restarts or the death of brokers, they go on; when the time is over
one reader reads everything.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from random import Random

from waystation.client.admin import Admin
from waystation.client.producer import Producer
from waystation.model.errors import GroupNotFoundError, WaystationError
from waystation.testing.history import Diary, Event
from waystation.testing.processors import Step, process
from waystation.testing.readers import NeverSettledError, read_to_end, wander
from waystation.testing.writers import Pace, Target, write_plainly, write_transactions

__all__ = ["Workload", "lives"]

_AGAIN_AFTER_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """How much of what; ``name`` begins the names of all topics, groups and ids it uses."""

    bootstrap: str
    name: str
    seconds: float
    topics: int = 2
    partitions: int = 3
    writers: int = 2
    readers: int = 2
    messages_per_s: float = 500.0
    transactions: bool = True
    aborts: float = 0.1
    """The share of transactions that are aborted."""
    patience_s: float = 60.0
    """How long the last reader waits for what stands in its way."""
    seed: int = 0

    @property
    def inputs(self) -> list[str]:
        """The topics that are written to."""
        return [f"{self.name}-{number}" for number in range(self.topics)]

    @property
    def processed(self) -> str:
        """The topic that has what was made of the others."""
        return f"{self.name}-processed"

    @property
    def topic_names(self) -> list[str]:
        """All of them."""
        return [*self.inputs, self.processed] if self.transactions else self.inputs

    async def create_topics(self) -> None:
        """Make the topics; raises if the cluster cannot be reached, or they are there already."""
        async with Admin(self.bootstrap) as admin:
            for topic in self.topic_names:
                await admin.create_topic(topic, self.partitions)

    async def tidy_up(self) -> None:
        """Leave no topics and no group behind; transactional ids expire."""
        async with Admin(self.bootstrap) as admin:
            for topic in self.topic_names:
                await admin.delete_topic(topic)
            with suppress(GroupNotFoundError):
                if self.transactions:
                    await admin.delete_groups(self._own("s"))

    async def run(self, write: Callable[[Event], object]) -> None:
        """Work for ``seconds``, then read everything; the topics must be there."""
        if self.transactions:
            await self._insist("first", write, self._meet_the_coordinator)
        chance = Random(self.seed)
        until_s = asyncio.get_running_loop().time() + self.seconds
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.writers):
                pace = Pace(_apart(chance), self.messages_per_s / self.writers, until_s)
                tasks.create_task(self._write(f"w{number}", pace, write))
            for number in range(self.readers):
                tasks.create_task(self._read(f"r{number}", _apart(chance), until_s, write))
            if self.transactions:
                tasks.create_task(self._process("s", _apart(chance), until_s, write))
        await self._insist("last", write, self._read_everything)

    async def _meet_the_coordinator(self, _: Diary) -> None:
        """For the first transactional producer a cluster makes a topic, which takes its time."""
        async with Producer(self.bootstrap, transactional_id=self._own("first")):
            pass

    async def _read_everything(self, diary: Diary) -> None:
        await read_to_end(self.bootstrap, self.topic_names, diary, self.patience_s)

    async def _insist(
        self,
        name: str,
        write: Callable[[Event], object],
        work: Callable[[Diary], Awaitable[None]],
    ) -> None:
        """Do it, whatever the cluster does meanwhile; raises if it cannot be done in time."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.patience_s
        for life in count():
            diary = Diary(f"{name}.{life}", write)
            try:
                await work(diary)
                return
            except WaystationError as error:
                if isinstance(error, NeverSettledError) or loop.time() > deadline_s:
                    raise
                diary.note(f"{type(error).__name__}: {error}")
            await asyncio.sleep(_AGAIN_AFTER_S)

    def _own(self, name: str) -> str:
        return f"{self.name}-{name}"

    async def _write(self, name: str, pace: Pace, write: Callable[[Event], object]) -> None:
        target = Target(self.bootstrap, self.inputs, self.partitions)

        async def live(diary: Diary) -> None:
            if self.transactions:
                await write_transactions(target, diary, pace, self._own(name), self.aborts)
            else:
                await write_plainly(target, diary, pace)

        await lives(name, write, live, pace.until_s)

    async def _process(
        self, name: str, chance: Random, until_s: float, write: Callable[[Event], object]
    ) -> None:
        own = self._own(name)
        step = Step(self.bootstrap, 1, own, self.inputs, self.processed, own, self.aborts)
        loop = asyncio.get_running_loop()

        async def live(diary: Diary) -> None:
            await process(step, diary, chance, lambda: loop.time() > until_s)

        # It may take its time: what it has not processed in the end, the checker cannot judge.
        await lives(name, write, live, until_s + self.patience_s)

    async def _read(
        self, name: str, chance: Random, until_s: float, write: Callable[[Event], object]
    ) -> None:
        await lives(
            name,
            write,
            lambda diary: wander(self.bootstrap, self.topic_names, diary, chance, until_s),
            until_s,
        )


async def lives(
    name: str,
    write: Callable[[Event], object],
    live: Callable[[Diary], Awaitable[None]],
    until_s: float,
) -> None:
    """Live again and again under new names, until a life ends in peace or the time is over."""
    loop = asyncio.get_running_loop()
    for life in count():
        diary = Diary(f"{name}.{life}", write)
        try:
            await live(diary)
            return
        except WaystationError as error:
            diary.note(f"{type(error).__name__}: {error}")
        if loop.time() > until_s:
            return
        await asyncio.sleep(_AGAIN_AFTER_S)


def _apart(chance: Random) -> Random:
    """Luck of its own, so that tasks do not depend on each other's turns."""
    return Random(chance.getrandbits(64))
