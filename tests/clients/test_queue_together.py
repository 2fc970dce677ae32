"""One queue, read by our own client and by librdkafka's share consumer at the same time."""

import asyncio
import threading
from collections import Counter

from confluent_kafka import ShareConsumer

from tests.support.soak import count
from waystation import Admin, Queue


async def test_our_client_and_another_share_a_queue(bootstrap: str, topic: str) -> None:
    """Each message is one consumer's, whoever's client that is."""
    total = count(200, 20_000)
    ours: Counter[bytes] = Counter()
    theirs: Counter[bytes] = Counter()
    is_over = threading.Event()
    async with Admin(bootstrap) as admin:
        await admin.create_queue(topic, 2)
    other = asyncio.create_task(asyncio.to_thread(_read, bootstrap, topic, theirs, is_over))
    try:
        async with asyncio.timeout(60), Queue(topic, bootstrap) as queue:
            sent = 0
            while len(ours) + len(theirs) < total:
                if sent < total:  # bit by bit, so that both are there by then
                    await asyncio.gather(*(queue.send(str(sent + one)) for one in range(20)))
                    sent += 20
                messages = await queue.receive(10, 50)
                ours.update(one.value or b"" for one in messages)
                await queue.ack(messages)
    finally:
        is_over.set()
        await other

    assert set((ours + theirs).values()) == {1}
    assert ours
    assert theirs


def _read(bootstrap: str, topic: str, seen: Counter[bytes], is_over: threading.Event) -> None:
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "share.acknowledgement.mode": "implicit",
            "max.poll.records": 10,
        }
    )
    consumer.subscribe([topic])
    while not is_over.is_set():
        for message in consumer.poll(0.1):
            assert message.error() is None, message.error()
            seen[message.value() or b""] += 1
    consumer.commit_sync(10)
    consumer.close()
