"""Queues whose messages are given up, on a node in this loop, and what their topics then hold."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from waystation import Admin, Consumer, Message, Producer, Queue
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicPartition
from waystation.node.node import Node
from waystation.node.settings import load
from waystation.sharing.dead_letters import Origin, origin_of

WITHIN_S = 20.0


@asynccontextmanager
async def running(path: Path, **options: str) -> AsyncIterator[Node]:
    """A whole node."""
    given = {
        "listen": "127.0.0.1:0",
        "http": "none",
        "log.dirs": str(path / "data"),
        "share.coordinator.state.topic.num.partitions": "2",
        "offsets.topic.num.partitions": "2",
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    node = Node(load([("test", given)]))
    try:
        await node.start()
        yield node
    finally:
        await node.stop()


def address(node: Node) -> str:
    host, port = node.address
    return f"{host}:{port}"


async def until(holds: Callable[[], Awaitable[object]], within_s: float = WITHIN_S) -> None:
    """Return once it holds."""
    async with asyncio.timeout(within_s):
        while not await holds():
            await asyncio.sleep(0.02)


async def fill(bootstrap: str, topic: str, *messages: tuple[str | None, str]) -> None:
    """Send messages of keys and values, each with a header of its own."""
    async with Producer(bootstrap, linger_ms=1) as producer:
        for key, value in messages:
            await producer.send(topic, value, key=key, headers={"of": value})


async def everything(bootstrap: str, topic: str) -> list[Message]:
    """All that is in a topic by now, by partition and offset; nothing if there is none."""
    async with Consumer(bootstrap=bootstrap, start="earliest") as consumer:
        places = await consumer.partitions_of(topic)
        await consumer.assign(places)
        ends = await consumer.end_offsets()
        found: list[Message] = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += await consumer.poll(100, 500)
    return sorted(found, key=lambda one: (one.partition, one.offset))


async def dead_letters(bootstrap: str, topic: str) -> list[tuple[bytes | None, Origin]]:
    """The values of a dead-letter topic, and what each says of itself."""
    async with Admin(bootstrap) as admin:
        if topic not in [one.name for one in await admin.list_topics()]:
            return []
    return [(one.value, _origin(one)) for one in await everything(bootstrap, topic)]


def _origin(message: Message) -> Origin:
    origin = origin_of(message.headers)
    assert origin is not None, f"{message} does not say where it came from"
    return origin


async def consume(
    bootstrap: str, topic: str, fate: Callable[[bytes], str], *, group: str | None = None
) -> None:
    """Take messages for ever, whoever dies; ``fate`` says what becomes of each."""
    while True:
        try:
            async with Queue(topic, bootstrap, group=group) as queue:
                await _consume(queue, fate)
        except WaystationError:
            await asyncio.sleep(0.05)


async def _consume(queue: Queue, fate: Callable[[bytes], str]) -> None:
    while True:
        for one in await queue.receive(10, 200):
            with suppress(WaystationError):  # it comes again, to whoever may settle it then
                match fate(one.value or b""):
                    case "accept":
                        await queue.ack(one)
                    case "release":
                        await queue.nack(one)
                    case "reject":
                        await queue.nack(one, requeue=False)


@asynccontextmanager
async def consuming(
    bootstrap: str, topic: str, fate: Callable[[bytes], str], *, group: str | None = None
) -> AsyncIterator[None]:
    """A consumer beside the test."""
    task = asyncio.create_task(consume(bootstrap, topic, fate, group=group))
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


def place(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)
