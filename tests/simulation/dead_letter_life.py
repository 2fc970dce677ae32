"""A queue whose messages die, by seed: leaders, the share coordinator and the target fail.

Odd messages are accepted, even ones rejected, each as often as it comes.  In the end the target
must have every even one once and no odd one, whatever was lost, repeated or late.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, cast
from uuid import UUID

from tests.scheduling.target import Target
from waystation.broker.dead_letter_desk import DeadLetterDesk, Services
from waystation.model.errors import CoordinatorNotAvailableError, WaystationError
from waystation.model.ids import LeaderEpoch, ProducerId, TopicId, TopicPartition
from waystation.model.machines import Waiter
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder
from waystation.scheduling.mover import Fence, Look, Outcome
from waystation.sharing.leader import QueueLeader, Steps
from waystation.sharing.persister import Initialize, Read, StateRead, Write
from waystation.sharing.reasons import Reasons
from waystation.sharing.settings import QueueSettings, ShareSettings
from waystation.sharing.share_partition import SharePartition
from waystation.sharing.state_machine import ShareStates
from waystation.sharing.state_records import QueueId
from waystation.sharing.states import ACCEPT, REJECT, Acknowledgement
from waystation.storage.log import LogSlice
from waystation.telemetry.metrics import Counter as Metric
from waystation.testing.virtual_time import Schedule, VirtualClock

QUEUE = QueueId("group", TopicId(UUID(int=7)), 0)
DEAD = TopicPartition("dead", 0)
MESSAGES = 120
_PER_BATCH = 4
_OPTIONS = QueueSettings(dead_letter_topic="dead", share_record_lock_duration_ms=2_000)


class Life:
    """One run: everything follows from the seed."""

    def __init__(self, seed: int, schedule: Schedule) -> None:
        self.random = Random(seed)
        self.clock = VirtualClock(schedule)
        self.trouble = self.random.uniform(0.05, 0.4)
        self.states = ShareStates(ShareSettings)
        self.target = Target()
        self.target.most_records = self.random.choice((1_000, 2))
        self.producers = 100
        self.epoch = 0
        self.leader: Leader | None = None
        self.old: list[Leader] = []
        self.tell(Initialize(QUEUE, 0, Offset(0)))

    async def run(self) -> None:
        """Trouble for a while, then calm until all is settled."""
        until = self.clock.now() + 8_000
        while self.clock.now() < until:
            if self.leader is None or self.random.random() < 0.05:
                self.elect()
            self.consume()
            await asyncio.sleep(self.random.uniform(0.005, 0.08))
        self.trouble = 0.0
        self.elect()
        for one in self.old:
            one.closed = True
        async with asyncio.timeout(300):
            while not self.is_over():
                self.consume()
                await asyncio.sleep(0.05)

    def is_over(self) -> bool:
        queue = None if self.leader is None else self.leader.queue
        return queue is not None and queue.start >= MESSAGES and queue.stored == queue.version

    def check(self) -> None:
        """Every even message once, and nothing else."""
        found = Counter(self.target.values)
        assert found == {b"%d" % n: 1 for n in range(0, MESSAGES, 2)}, found - Counter(set(found))

    # --- who leads --------------------------------------------------------------------------

    def elect(self) -> None:
        """Another leads; who led before may not know yet."""
        if self.leader is not None:
            if self.random.random() < 0.5:
                self.leader.closed = True
            self.old.append(self.leader)
        self.epoch += 1
        self.leader = Leader(self, LeaderEpoch(self.epoch))

    def consume(self) -> None:
        """Consumers take messages of any leader that would give them, and say their fate."""
        for one in (self.leader, *self.old):
            if one is not None and not one.closed and self.random.random() < 0.35:
                one.consume()

    # --- the coordinator --------------------------------------------------------------------

    def tell(self, command: Initialize | Read | Write) -> object:
        """Follow a command at once."""
        answers: list[object] = []
        decide = getattr(self.states, type(command).__name__.lower())
        outcome = decide(self.clock.now(), command, answers.append)
        for record in outcome.records:
            self.states.apply(record)
        for to, answer in outcome.replies:
            to(answer)
        return answers[0]

    def ask(self, command: Read | Write, to: Waiter) -> None:
        """Follow it some time, perhaps twice; answer some time, perhaps not with the answer."""
        loop = asyncio.get_running_loop()

        def arrive() -> None:
            answer = self.tell(command)
            if self.unlucky():
                loop.call_later(self.delay_s(), partial(self.tell, command))
            answer = CoordinatorNotAvailableError("lost") if self.unlucky() else answer
            loop.call_later(self.delay_s(), partial(to, answer))

        if self.unlucky():
            loop.call_later(self.delay_s(), partial(to, CoordinatorNotAvailableError("lost")))
            if self.unlucky():
                loop.call_later(20 * self.delay_s(), partial(self.tell, command))
        else:
            loop.call_later(self.delay_s(), arrive)

    def unlucky(self) -> bool:
        return self.random.random() < self.trouble

    def delay_s(self) -> float:
        return self.random.uniform(0.001, 0.04)

    # --- the courier ------------------------------------------------------------------------

    async def new_producer(self) -> ProducerId:
        await asyncio.sleep(self.delay_s())
        self.producers += 1
        return ProducerId(self.producers)

    async def send(self, batch: bytes, target: TopicPartition) -> Outcome:
        assert target == DEAD
        return await self._carry(lambda: self.target.produce(batch, self.clock.now()))

    async def fence(self, ask: Fence) -> Outcome:
        epoch = ask.producer_epoch
        return await self._carry(
            lambda: self.target.fence(ask.producer_id, epoch, self.clock.now())
        )

    async def look(self, ask: Look) -> Outcome:
        return await self._carry(lambda: self.target.look(ask.batch))

    async def _carry(self, do: Callable[[], Outcome]) -> Outcome:
        await asyncio.sleep(self.delay_s())
        if self.unlucky():
            return Outcome.NOT_NOW
        if self.unlucky():
            if self.unlucky():  # on its way for longer than anybody waits for an answer
                asyncio.get_running_loop().call_later(20 * self.delay_s(), do)
            return Outcome.UNCLEAR
        outcome = do()
        await asyncio.sleep(self.delay_s())
        return Outcome.UNCLEAR if self.unlucky() else outcome


class Leader:
    """What the desk knows of a queue's host, and the host itself."""

    def __init__(self, life: Life, epoch: LeaderEpoch) -> None:
        self.life, self.epoch, self.queue_id = life, epoch, QUEUE
        self.partition = cast(Any, Source())
        self.leader: QueueLeader[SharePartition] | None = None
        self.closed, self.reasons = False, Reasons()
        self._desk: DeadLetterDesk | None = None
        life.ask(Read(QUEUE, epoch), self._loaded)

    @property
    def queue(self) -> SharePartition | None:
        return None if self.leader is None else self.leader.queue

    def settings(self) -> QueueSettings:
        return _OPTIONS

    def _loaded(self, answer: object) -> None:
        if self.closed or self.leader is not None:
            return
        if isinstance(answer, WaystationError):
            retry = partial(self.life.ask, Read(QUEUE, self.epoch), self._loaded)
            asyncio.get_running_loop().call_later(0.02, retry)
            return
        assert isinstance(answer, StateRead)
        queue = SharePartition(answer.start, self.settings, ShareSettings)
        queue.load(self.life.clock.now(), answer.batches)
        self.leader = QueueLeader(QUEUE, self.epoch, answer.state_epoch, queue, answer.notes)
        self._changed()

    def consume(self) -> None:
        """Take a few, and say of each what becomes of it."""
        leader, now = self.leader, self.life.clock.now()
        if leader is None or leader.fenced_by is not None:
            return
        first = leader.queue.next_offset(now)
        if first is None:
            return
        taken = leader.queue.acquire(
            now, "m", self.life.random.choice((1, 2, 9)), first, Offset(MESSAGES)
        )
        said = [
            Acknowledgement(Offset(at), Offset(at + 1), ACCEPT if at % 2 else REJECT)
            for begin, end, _ in taken
            for at in range(begin, end)
            if self.life.random.random() < 0.9
        ]
        if said:
            self._carry_out(leader.acknowledge(now, "m", said, lambda _: None))

    def write_due(self) -> None:
        if self.leader is not None and not self.closed:
            self._carry_out(Steps((), self.leader.due()))

    def _carry_out(self, steps: Steps) -> None:
        if steps.write is not None:
            self.life.ask(steps.write, self._wrote)

    def _wrote(self, answer: object) -> None:
        leader = self.leader
        if leader is None or self.closed:
            return
        error = answer if isinstance(answer, WaystationError) else None
        self._carry_out(leader.wrote(error))
        if leader.fenced_by is not None:
            self.closed = True
        elif error is not None:
            asyncio.get_running_loop().call_later(0.02, self.write_due)
        else:
            self._changed()

    def _changed(self) -> None:
        assert self.leader is not None
        if self._desk is None and self.leader.queue.dying:
            services = Services(cast(Any, Topics(self.life)), self.life.clock, Metric(), Metric())
            self._desk = DeadLetterDesk(cast(Any, self), services)
        if self._desk is not None:
            self._desk.poke()


class Topics:
    """Where dead letters go."""

    def __init__(self, life: Life) -> None:
        self.courier = life

    async def target(self, source: TopicPartition, name: str) -> TopicPartition:
        return DEAD

    def batch_bytes(self, name: str) -> int:
        return 1 << 20


class Source:
    """The partition that is consumed, as far as its records are read again."""

    name = TopicPartition("orders", 0)
    high_watermark = Offset(MESSAGES)

    def __init__(self) -> None:
        self.log = self
        self.log_start = Offset(0)

    def read(self, offset: Offset, max_bytes: int, *, at_least_one: bool) -> LogSlice:
        base = offset - offset % _PER_BATCH
        builder = BatchBuilder()
        for number in range(base, base + _PER_BATCH):
            builder.append(b"k%d" % (number % 3), b"%d" % number, (), timestamp=Millis(number))
        batch = base.to_bytes(8, "big") + builder.build()[8:]
        return LogSlice(cast(Any, Region(batch)), Offset(base + _PER_BATCH))


class Region:
    """Bytes that are there."""

    def __init__(self, batch: bytes) -> None:
        self.nbytes, self._batch = len(batch), batch

    def read(self) -> bytes:
        return self._batch
