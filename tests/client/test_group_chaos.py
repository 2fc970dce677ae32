"""Members come, go, crash, dawdle and fail at random while the broker is killed under them.

At least once, everything is processed; at most once, nothing is twice.  While the group lives, no
partition has two readers in one generation.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from tests.support.soak import SOAKING, count

from waystation import Admin, Consumer, Message, Producer, WaystationError
from waystation.client.classic_member import ClassicMember
from waystation.client.options import ConsumerOptions
from waystation.testing.process import BrokerProcess

SECONDS = count(3, 60)
MEMBERS = 4
OPTIONS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "600",
    "offsets.topic.num.partitions": "4",
}
FAST: ConsumerOptions = {
    "session_timeout_ms": 600,
    "heartbeat_interval_ms": 50,
    "auto_commit_interval_ms": 100,
    "max_poll_interval_ms": 500,
    "retry_backoff_ms": 10,
}


class FailedError(Exception):
    """The application fails while it processes."""


class Company:
    """The members of one group, and what they did."""

    def __init__(self, bootstrap: str, chance: Random, options: ConsumerOptions) -> None:
        self.processed: Counter[int] = Counter()
        self.sent = 0
        self._bootstrap, self._chance, self._options = bootstrap, chance, options
        self._members: list[Consumer] = []

    async def produce(self) -> None:
        async with Producer(self._bootstrap) as producer:
            while True:
                for _ in range(20):
                    producer.submit("orders", b"%d" % self.sent, key=b"%d" % (self.sent % 50))
                    self.sent += 1
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    break  # and deliver what was handed over

    async def live(self) -> None:
        """One place in the company: member after member."""
        while True:
            await asyncio.sleep(self._chance.uniform(0, 0.2))
            with suppress(FailedError, WaystationError):
                await self._member(self._chance.choice(["leave", "fail", "crash", "dawdle"]))

    async def _member(self, end: str) -> None:
        consumer = self.join()
        async with consumer:
            self._members.append(consumer)
            try:
                for _ in range(self._chance.randrange(5, 40)):
                    messages = await consumer.poll(50, self._chance.choice([1, 100]))
                    if end == "dawdle" and self._chance.random() < 0.2:
                        await asyncio.sleep(self._chance.choice([0.1, 0.2, 0.8]))
                    self._process(consumer, messages)
                if end == "fail":
                    messages = await consumer.poll(50)
                    self._process(consumer, messages[: len(messages) // 2])
                    raise FailedError
            finally:
                self._members.remove(consumer)
            if end == "crash":
                await consumer._router.close()  # nobody hears of it any more

    def join(self) -> Consumer:
        return Consumer("g", "orders", bootstrap=self._bootstrap, **FAST | self._options)

    def _process(self, consumer: Consumer, messages: list[Message]) -> None:
        for message in messages:
            self._check_owner(consumer, (message.topic, message.partition))
            self.processed[int(message.value or b"")] += 1

    def _check_owner(self, reader: Consumer, where: tuple[str, int]) -> None:
        """Whoever processes a message still has its partition, and nobody else has."""
        assert where in reader.assignment, f"{where} was taken away from under the application"
        own = generation_of(reader)
        for other in self._members:
            theirs = generation_of(other)
            if other is reader or theirs is None or own is None:
                continue  # who is no member at the moment has lost what he reads
            if where in other.assignment:
                assert theirs != own, f"{where} has two readers in generation {own}"


def generation_of(consumer: Consumer) -> int | None:
    """In which it was given what it reads.

    Not the one it may be joining: a coordinator that is killed before members have their shares
    gives the number again.
    """
    assert consumer._group is not None, "a consumer without a group"
    member, who = consumer._group._member, consumer._group._identity()
    if who is None:
        return None
    return member.assigned_in if isinstance(member, ClassicMember) else who.generation


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", options=OPTIONS).start() as process:
        async with Admin(process.bootstrap) as admin:
            await admin.create_topic("orders", 6)
        yield process


EAGER: ConsumerOptions = {"assignors": "range"}
COOPERATIVE: ConsumerOptions = {"assignors": "cooperative-sticky"}
SERVER_SIDE: ConsumerOptions = {"group_protocol": "consumer"}
EVERY_DAY = [(COOPERATIVE, "at-least-once"), (SERVER_SIDE, "at-most-once")]
EVERY = [
    (kind, delivery)
    for kind in (EAGER, COOPERATIVE, SERVER_SIDE)
    for delivery in ("at-least-once", "at-most-once")
]


@pytest.mark.parametrize(("kind", "delivery"), EVERY if SOAKING else EVERY_DAY)
async def test_members_and_broker_fail_at_random(
    broker: BrokerProcess, kind: ConsumerOptions, delivery: str
) -> None:
    seed = int(os.environ.get("SEED") or Random().randrange(1 << 32))
    options: ConsumerOptions = {**kind, "delivery": delivery}
    company = Company(broker.bootstrap, Random(seed), options)
    producing = asyncio.create_task(company.produce())
    living = [asyncio.create_task(company.live()) for _ in range(MEMBERS)]
    try:
        for _ in range(max(SECONDS // 3, 1)):
            await asyncio.sleep(1.5)
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            await asyncio.sleep(1.5)
        for task in living:
            assert not task.done(), f"seed {seed}: {task}"
    finally:
        for task in living:
            task.cancel()
        await asyncio.gather(*living, return_exceptions=True)
        producing.cancel()
        await producing
    await drain(company)

    print(f"seed {seed}: {company.sent} sent, {sum(company.processed.values())} processed")  # noqa: T201
    if delivery == "at-least-once":
        missing = [one for one in range(company.sent) if not company.processed[one]]
        assert not missing, f"seed {seed}: {len(missing)} skipped, such as {missing[:5]}"
    else:
        again = [one for one, times in company.processed.items() if times > 1]
        assert not again, f"seed {seed}: {len(again)} twice, such as {again[:5]}"
        assert len(company.processed) > company.sent / 2, f"seed {seed}: most are lost"


async def drain(company: Company) -> None:
    """Read what is left, to the end."""
    async with company.join() as consumer:
        while True:
            company._process(consumer, await consumer.poll(timeout_ms=200, max_messages=1_000))
            if len(consumer.assignment) == 6:
                ends = await consumer.end_offsets()
                if all(consumer.position(where) >= end for where, end in ends.items()):
                    return
