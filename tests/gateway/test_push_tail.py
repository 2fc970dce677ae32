"""Followers of one tail, of all kinds: each gets what it wants, once and in order."""

import asyncio
import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from tests.support.soak import count

from waystation.client.message import Message
from waystation.filters.selecting import Filter
from waystation.gateway.push_events import Face
from waystation.gateway.push_meters import PushMeters
from waystation.gateway.push_subscriber import Subscriber, Wanted
from waystation.gateway.push_tail import Entry, Tail, matches
from waystation.model.offsets import Millis, Offset
from waystation.telemetry.metrics import Registry

SEEDS = count(20, 1_000)
ENTRIES = 150
KEYS = ("ann", "bob", "eve", "joe", None)
FILTERS = (
    None,
    "key = 'ann'",
    "key = 'nobody'",
    "key IN ('bob', 'eve')",
    "key = 'joe' AND offset > 40",
    "key = 'ann' OR key = 'joe'",
    "partition = 1",
)
LINES = Face("lines", lambda _, content: content + b"\n", bytes, lambda *_: b"", lambda _: b"")
TOPIC: Any = SimpleNamespace(id=UUID(int=7), name="t", partitions=())


class Wire:
    """Keeps what is written, and has no room now and then."""

    on_lost = on_said = None
    is_open = True

    def __init__(self) -> None:
        self.written = b""
        self._room = asyncio.Event()
        self._room.set()

    @property
    def is_paused(self) -> bool:
        return not self._room.is_set()

    def pause(self, paused: bool) -> None:
        (self._room.clear if paused else self._room.set)()

    def write(self, content: bytes) -> None:
        self.written += content

    async def drained(self) -> None:
        await self._room.wait()

    @property
    def values(self) -> list[str]:
        return [json.loads(line)["value"] for line in self.written.splitlines()]


class Follower(NamedTuple):
    where: Filter | None
    wire: Wire
    subscriber: Subscriber

    def wants(self, one: Message) -> bool:
        return self.where is None or matches(self.where, one)


def follower(rng: random.Random) -> Follower:
    expression = rng.choice(FILTERS)
    where = None if expression is None else Filter(expression)
    wire, credit = Wire(), rng.choice((None, 0, 3))
    wanted = Wanted(TOPIC, None, {}, "text", where)
    unused: Any = None
    meters = PushMeters(Registry())
    return Follower(
        where, wire, Subscriber(unused, unused, meters, wanted, LINES, wire, credit=credit)
    )


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_each_gets_what_it_wants_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    unused: Any = None
    tail = Tail(unused, TOPIC, None, unused)
    followers = [follower(rng) for _ in range(20)]
    running = [asyncio.ensure_future(one.subscriber._follow(tail)) for one in followers]
    ends, sent = {0: 0, 1: 0}, list[Message]()

    def message() -> Message:
        partition, key = rng.randrange(2), rng.choice(KEYS)
        offset, ends[partition] = ends[partition], ends[partition] + 1
        raw = None if key is None else key.encode()
        value = str(len(sent)).encode()
        sent.append(Message(raw, value, "t", partition, Offset(offset), Millis(0)))
        return sent[-1]

    for _ in range(ENTRIES):
        messages = [message() for _ in range(rng.randint(1, 4))]
        pushing = asyncio.ensure_future(
            tail._push(Entry(tail.next_number, tail.mark, tail.positions, messages))
        )
        for one in rng.sample(followers, 3):
            one.wire.pause(rng.random() < 0.3)
            if one.subscriber.credit is not None and rng.random() < 0.5:
                one.subscriber.grant(rng.randint(1, 3))
            if rng.random() < 0.2:
                one.subscriber._changed.set()  # as a heartbeat does
        for _ in range(rng.randint(0, 3)):
            await asyncio.sleep(0)
        await pushing

    for one in followers:
        one.wire.pause(False)
        if one.subscriber.credit is not None:
            one.subscriber.grant(10_000)
    await until(lambda: not any(one.subscriber.is_behind for one in followers))
    for one in followers:
        expected = [told.value.decode() for told in sent if one.wants(told) and told.value]
        assert one.wire.values == expected, f"{one.where} with credit {one.subscriber.credit}"
        assert one.subscriber._positions.keys() <= ends.keys()
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    assert not tail.followers
    assert not tail.resting
