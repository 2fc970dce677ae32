"""Our own client of queues: against our brokers, and with ``--peer kafka`` against Apache Kafka."""

import asyncio
from collections.abc import Callable

from tests.compat.letters import WrongAnswerError
from tests.compat.target import Target
from waystation import Admin, NotHeldError, Queue, QueueMessage
from waystation.version import VERSION

_WAIT_MS = 30_000
_MESSAGES = 50


def our_queue(target: Target) -> str:
    """Send, receive, acknowledge, give back, give up, extend; and what is not held."""
    asyncio.run(asyncio.wait_for(_queue(target.bootstrap, target.topic("queue")), 90))
    return VERSION


async def _queue(bootstrap: str, name: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_queue(name, 2)
    async with Queue(name, bootstrap) as queue:
        for number in range(_MESSAGES):
            await queue.send(str(number), key=str(number))
        first = await _received(queue, _MESSAGES)
        _expect("each comes once", {one.deliveries for one in first}, {1})
        back, up, *rest = first
        await queue.extend(back)
        await queue.ack(rest)
        await queue.nack(up, requeue=False)
        await queue.nack(back)
        (again,) = await _received(queue, 1)
        _expect("what was given back", (again.value, again.deliveries), (back.value, 2))
        await queue.ack(again)
        try:
            await queue.ack(again)
        except NotHeldError:
            pass
        else:
            raise WrongAnswerError("a message was acknowledged twice")
        _expect("nothing is left", await queue.receive(10, 500), [])
    async with Admin(bootstrap) as admin:
        _expect("unsettled", (await admin.describe_queue(name)).unsettled, 0)


async def _received(queue: Queue, wanted: int) -> list[QueueMessage]:
    messages: list[QueueMessage] = []
    while len(messages) < wanted:
        got = await queue.receive(wanted - len(messages), _WAIT_MS)
        if not got:
            raise WrongAnswerError(f"{len(messages)} of {wanted} messages came")
        messages += got
    return messages


def _expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise WrongAnswerError(f"{what}: {found!r}, expected {wanted!r}")


CHECKS: dict[str, Callable[[Target], str]] = {"our-queue": our_queue}
