"""Messages for later while brokers die: who sends, cancels, re-times and reads; and what was wrong.

What counts is what clients were told.  A wish without an answer may have been granted or not, and
the checker allows both; every other answer binds.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from waystation import Admin, Consumer, Producer
from waystation.client.schedule_descriptions import MaybeCancelledError, MessageId
from waystation.client.schedules import Schedules
from waystation.model.errors import WaystationError
from waystation.scheduling.errors import NotPendingError

_PATIENT_MS = 60_000
_SURELY_KNOWN_MS = 1_000
"""How long before its time a message must be acknowledged for its place in the order to be sure."""


@dataclass(slots=True)
class Plan:
    """One message, by what its sender and those who changed it were told."""

    value: bytes
    partition: int
    due: int
    """The earliest at which it may come."""
    sent_ms: int
    changed: bool = False
    cancelled: bool = False
    perhaps_cancelled: bool = False


@dataclass(slots=True, frozen=True)
class Seen:
    """One message of the topic, as a consumer got it, and when."""

    value: bytes
    partition: int
    offset: int
    timestamp: int
    at_ms: int


def findings(plans: list[Plan], seen: list[Seen]) -> list[str]:
    """Everything that is against the promises."""
    return [*_miscounted(plans, seen), *_early(plans, seen), *_out_of_order(plans, seen)]


def _miscounted(plans: list[Plan], seen: list[Seen]) -> Iterator[str]:
    times: dict[bytes, int] = {}
    for one in seen:
        times[one.value] = times.get(one.value, 0) + 1
    for plan in plans:
        came = times.pop(plan.value, 0)
        if plan.cancelled and came:
            yield f"cancelled and delivered: {plan}"
        elif not plan.cancelled and not plan.perhaps_cancelled and not came:
            yield f"lost: {plan}"
        elif came > 1:
            yield f"delivered {came} times: {plan}"
    yield from (f"from nowhere: {value!r}" for value in times)


def _early(plans: list[Plan], seen: list[Seen]) -> Iterator[str]:
    due = {plan.value: plan.due for plan in plans}
    for one in seen:
        if min(one.timestamp, one.at_ms) < due.get(one.value, 0):
            yield f"early: {one}, due {due[one.value]}"


def _out_of_order(plans: list[Plan], seen: list[Seen]) -> Iterator[str]:
    """Of those that nobody touched, and that were there in good time."""
    sure = {
        plan.value: plan.due
        for plan in plans
        if not plan.changed and plan.sent_ms + _SURELY_KNOWN_MS < plan.due
    }
    last: dict[int, Seen] = {}
    for one in sorted(seen, key=lambda each: each.offset):
        if one.value not in sure:
            continue
        before = last.get(one.partition)
        if before is not None and sure[before.value] > sure[one.value]:
            yield f"{one} came behind {before}, due {sure[before.value]} and {sure[one.value]}"
        last[one.partition] = one


class ScheduledLife:
    """Clients of one topic, for as long as the test lets them."""

    def __init__(self, bootstrap: str, topic: str, seed: int, partitions: int = 2) -> None:
        self.plans: dict[MessageId, Plan] = {}
        self.seen: list[Seen] = []
        self.answers = 0
        """Wishes that were granted."""
        self._bootstrap, self._topic = bootstrap, topic
        self._partitions = partitions
        self._chance = Random(seed)
        self._sending = True

    async def create(self, replication_factor: int) -> None:
        """Make the topic, and wait until messages can wait for it."""
        async with Admin(self._bootstrap) as admin:
            await admin.create_topic(
                self._topic,
                self._partitions,
                replication_factor=replication_factor,
                configs={"schedule.enable": "true"},
            )
            await admin.schedules(self._topic).count()

    def stop(self) -> None:
        """Send and change nothing more."""
        self._sending = False

    async def run(self, settle_s: float = 30.0) -> None:
        """Send, change and read until stopped, and until everything is delivered."""
        async with (
            Producer(self._bootstrap, delivery_timeout_ms=_PATIENT_MS) as producer,
            Admin(self._bootstrap, metadata_timeout_ms=_PATIENT_MS) as admin,
            Consumer(topics=[self._topic], bootstrap=self._bootstrap, start="earliest") as consumer,
        ):
            schedules = admin.schedules(self._topic)
            reading = asyncio.create_task(self._read(consumer))
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._send(producer))
                    tasks.create_task(self._change(schedules))
                await self._settle(schedules, settle_s)
            finally:
                reading.cancel()
                with suppress(asyncio.CancelledError):
                    await reading

    def findings(self) -> list[str]:
        """What was wrong."""
        return findings(list(self.plans.values()), self.seen)

    async def _send(self, producer: Producer) -> None:
        number = 0
        while self._sending:
            await asyncio.gather(*(self._send_one(producer, number + n) for n in range(10)))
            number += 10
            await asyncio.sleep(0.02)

    async def _send_one(self, producer: Producer, number: int) -> None:
        due = _now_ms() + self._chance.randrange(100, 3_000)
        value, partition = b"%d" % number, number % self._partitions
        sent = await producer.send(self._topic, value, partition=partition, deliver_at=due)
        self.plans[MessageId.of(sent)] = Plan(value, partition, due, _now_ms())

    async def _change(self, schedules: Schedules) -> None:
        while self._sending:
            await asyncio.sleep(0.01)
            waiting = [
                (name, plan)
                for name, plan in list(self.plans.items())[-400:]
                if not plan.changed and plan.due > _now_ms()
            ]
            if not waiting:
                continue
            name, plan = self._chance.choice(waiting)
            plan.changed = True
            if self._chance.random() < 0.5:
                await self._cancel(schedules, name, plan)
            else:
                await self._retime(schedules, name, plan)

    async def _cancel(self, schedules: Schedules, name: MessageId, plan: Plan) -> None:
        try:
            await schedules.cancel(name)
        except MaybeCancelledError:
            plan.perhaps_cancelled = True
        except NotPendingError:
            pass
        except WaystationError:
            plan.perhaps_cancelled = True
        else:
            plan.cancelled = True
            self.answers += 1

    async def _retime(self, schedules: Schedules, name: MessageId, plan: Plan) -> None:
        to = _now_ms() + self._chance.randrange(50, 3_000)
        plan.due = min(plan.due, to)  # for an attempt without an answer may have moved it
        with suppress(WaystationError):
            await schedules.retime(name, to)
            plan.due = to
            self.answers += 1

    async def _read(self, consumer: Consumer) -> None:
        while True:
            for message in await consumer.poll(timeout_ms=100):
                assert message.value is not None
                self.seen.append(
                    Seen(
                        message.value,
                        message.partition,
                        message.offset,
                        message.timestamp,
                        _now_ms(),
                    )
                )

    async def _settle(self, schedules: Schedules, within_s: float) -> None:
        """Wait until nothing waits and all of it was read; then a moment for what is too much."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            came = {one.value for one in self.seen}
            left = [
                plan
                for plan in self.plans.values()
                if plan.value not in came and not (plan.cancelled or plan.perhaps_cancelled)
            ]
            if not left and not await schedules.count():
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)


def _now_ms() -> int:
    return int(time.time() * 1_000)
