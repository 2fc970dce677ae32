"""Clients of a broker with transactions, as they are: they ask again, stand still and are killed.

Each writes down what it does and sees; the history is what the checker judges them by.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tests.simulation.transaction_broker import IN, OFFSETS, OUT, PARTITIONS, Broker, Request
from waystation.model.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadingError,
    NotCoordinatorError,
    OutOfOrderSequenceError,
    UnstableOffsetCommitError,
    WaystationError,
)
from waystation.model.ids import TopicPartition
from waystation.testing.history import Diary, Event, Seen, Span, Value, Written
from waystation.testing.network import End
from waystation.testing.world import World

TIMEOUT_MS = 1_500
_BACKOFF_S = 0.05
_PATIENCE_S = 4.0
_GIVE_UP_S = 12.0
_PASSING = (
    ConcurrentTransactionsError,
    CoordinatorLoadingError,
    NotCoordinatorError,
    OutOfOrderSequenceError,
    UnstableOffsetCommitError,
)
GROUP = "billing"


class DisconnectedError(Exception):
    """The connection broke, or was given up."""


class GivenUpError(Exception):
    """It was asked for too long."""


class Wire:
    """Asks the broker, on a new connection when the old one is lost."""

    def __init__(self, world: World, source: str) -> None:
        self._world, self._source = world, source
        self._end: End | None = None
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def insist(self, method: str, *arguments: Any) -> Any:
        """The answer, asking again where that may help."""
        deadline = self._world.now_ms + _GIVE_UP_S * 1_000
        while self._world.now_ms < deadline:
            try:
                return await self._ask(method, arguments)
            except (DisconnectedError, *_PASSING):
                await asyncio.sleep(_BACKOFF_S * self._world.chance.uniform(0.5, 1.5))
        raise GivenUpError(f"{method}{arguments}")

    async def _ask(self, method: str, arguments: tuple[Any, ...]) -> Any:
        self._number += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = answer
        self._connected().send(Request(self._number, method, arguments))
        try:
            async with asyncio.timeout(_PATIENCE_S):
                found = await answer
        except TimeoutError:
            if self._end is not None:
                self._end.close()
                self._lost()
            raise DisconnectedError from None
        if isinstance(found, WaystationError):
            raise found
        return found

    def _connected(self) -> End:
        if self._end is None:
            self._end = self._world.network.connect(self._source, "broker")
            self._end.on_message = self._answered
            self._end.on_close = self._lost
        return self._end

    def _answered(self, message: tuple[int, object]) -> None:
        number, answer = message
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _lost(self) -> None:
        self._end = None
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.done():
                one.set_exception(DisconnectedError())


class Producer:
    """A transactional producer, of the classic flow or of KIP-890's."""

    def __init__(self, wire: Wire, diary: Diary, transactional_id: str, *, classic: bool) -> None:
        self._wire, self._diary = wire, diary
        self._id, self._classic = transactional_id, classic
        self._who: tuple[int, int] = (-1, -1)
        self._sequences: dict[TopicPartition, int] = defaultdict(int)
        self._added: set[TopicPartition] = set()
        self.number = -1

    async def start(self) -> None:
        told = await self._wire.insist("init", self._id, TIMEOUT_MS)
        self._who = (told.producer_id, told.epoch)

    def begin(self) -> None:
        self.number = self._diary.begin()
        self._added.clear()

    async def send(self, where: TopicPartition, texts: Sequence[str]) -> None:
        """Send values that say ``texts`` after their names, and write down where they went."""
        values = self._diary.sending(self.number, len(texts))
        sequence = self._sequences[where]
        self._sequences[where] += len(values)
        await self._add(where)
        rows = tuple(f"{value} {text}" for value, text in zip(values, texts, strict=True))
        implicit = not self._classic
        offset = await self._wire.insist(
            "produce", self._id, *self._who, where, sequence, rows, implicit
        )
        self._diary.acknowledged(
            Written(*where, offset + n, value.number) for n, value in enumerate(values)
        )

    async def commit_offsets(self, spans: Sequence[Span]) -> None:
        await self._add(OFFSETS)
        self._diary.consuming(self.number, GROUP, spans)
        offsets = tuple((TopicPartition(one.topic, one.partition), one.end) for one in spans)
        implicit = not self._classic
        await self._wire.insist("commit_offsets", self._id, *self._who, GROUP, offsets, implicit)

    async def end(self, *, commit: bool) -> None:
        self._diary.deciding(self.number, commit=commit)
        told = await self._wire.insist("end", self._id, *self._who, commit, not self._classic)
        self._diary.ended(self.number, committed=commit)
        if not self._classic and told.producer_id >= 0:
            self._who = (told.producer_id, told.epoch)
            self._sequences.clear()

    async def _add(self, where: TopicPartition) -> None:
        if self._classic and where not in self._added:
            await self._wire.insist("add", self._id, *self._who, where)
            self._added.add(where)


class Client:
    """A program on a node of its own; started again it has another name in the history."""

    def __init__(self, broker: Broker, name: str, events: list[Event]) -> None:
        self.broker, self.world, self.name = broker, broker.world, name
        self.node = self.world.nodes.get(name) or self.world.node(name)
        self._events = events
        self._life = 0
        self.is_done = False
        self.node.spawn(self._live())

    def again(self) -> "Client":
        """The same program after a death."""
        self.node.restart()
        return type(self)(self.broker, self.name, self._events)

    async def _live(self) -> None:
        while not self.is_done:
            self._life += 1
            name = f"{self.name}.{self.node.life}.{self._life}"
            diary = Diary(name, self._events.append, self._now_ns)
            try:
                await self._work(Wire(self.world, self.node.name), diary)
            except (WaystationError, GivenUpError) as error:
                self.world.note(f"{name}: {type(error).__name__} {error}")
                self.is_done = self.is_done or self._is_zombie
                await asyncio.sleep(_BACKOFF_S)

    async def _work(self, wire: Wire, diary: Diary) -> None:
        raise NotImplementedError

    def _now_ns(self) -> int:
        # Events of one moment have an order all the same.
        return int(self.world.now_ms * 1e6) * 1_000 + self.world.schedule.steps % 1_000

    async def _stumble(self) -> None:
        """Now and then, stand still for longer than a transaction may take."""
        if not self.broker.calm and self.world.chance.random() < 0.03:
            await asyncio.sleep(self.world.chance.uniform(0, 2 * TIMEOUT_MS / 1_000))

    @property
    def _is_zombie(self) -> bool:
        return self.name.endswith("-zombie")

    @property
    def _own_id(self) -> str:
        """Zombies have the same transactional id as whom they haunt."""
        return self.name.removesuffix("-zombie")

    @property
    def _is_classic(self) -> bool:
        return "classic" in self.name


class Writer(Client):
    """Sends values to the input, in transactions of which some are aborted."""

    async def _work(self, wire: Wire, diary: Diary) -> None:
        chance = self.world.chance
        producer = Producer(wire, diary, self._own_id, classic=self._is_classic)
        await producer.start()
        while not self.is_done:
            producer.begin()
            for _ in range(chance.randint(1, 3)):
                some = [
                    producer.send(TopicPartition(IN, chance.randrange(PARTITIONS)), [""] * n)
                    for n in (1, chance.randint(1, 3))
                ]
                await asyncio.gather(*some)
                await self._stumble()
            await producer.end(commit=chance.random() < 0.8)
            await asyncio.sleep(chance.uniform(0, 0.1))
            if self.broker.calm:
                self.is_done = True


class Processor(Client):
    """Sends what it reads of an input partition to the output, each message once."""

    async def _work(self, wire: Wire, diary: Diary) -> None:
        chance = self.world.chance
        producer = Producer(wire, diary, self._own_id, classic=self._is_classic)
        await producer.start()
        source = TopicPartition(IN, int(self._own_id[-1]))
        target = TopicPartition(OUT, chance.randrange(PARTITIONS))
        position = await wire.insist("offset", GROUP, source)
        diary.seeking(source, position)
        while not self.is_done:
            rows, after = await wire.insist("fetch", source, position)
            some = rows[: chance.randint(1, 8)]
            if not some:
                position = after
                self.is_done = self.broker.input_is_over
                await asyncio.sleep(0.05)
                continue
            ahead = some[-1][0] + 1
            diary.polled(source, ahead, (Seen(at, *Value.of(row.encode())) for at, row in some))
            producer.begin()
            await producer.send(target, [row.split(" ")[0] for _, row in some])
            await self._stumble()
            await producer.commit_offsets([Span(*source, some[0][0], ahead)])
            await self._stumble()
            commit = chance.random() < 0.8
            await producer.end(commit=commit)
            if commit:
                position = ahead
            else:
                diary.seeking(source, position)


class Reader(Client):
    """Reads everything, again and again."""

    async def _work(self, wire: Wire, diary: Diary) -> None:
        positions = dict.fromkeys(
            (where for where in self.broker.store.logs if where != OFFSETS), 0
        )
        for where in positions:
            diary.seeking(where, 0)
        while not self.is_done:
            for where, position in positions.items():
                rows, ahead = await wire.insist("fetch", where, position)
                seen = (Seen(at, *Value.of(row.encode())) for at, row in rows)
                diary.polled(where, ahead, seen)
                positions[where] = ahead
            await asyncio.sleep(self.world.chance.uniform(0.05, 0.3))

    def finish(self) -> None:
        """Read to the end, which nothing is in the way of any more."""
        diary = Diary("last", self._events.append, self._now_ns)
        for where, log in self.broker.store.logs.items():
            if where != OFFSETS:
                diary.seeking(where, 0)
                rows, end = log.visible(0)
                assert end == log.end, f"a transaction in {where} is open at {end} of {log.end}"
                diary.polled(where, end, (Seen(at, *Value.of(row.encode())) for at, row in rows))
                diary.finished(where, end, self._now_ns())
