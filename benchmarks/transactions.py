"""What transactions cost a producer: the same load with and without them, in turn.

    python -m benchmarks.transactions [--seconds S] [--rounds N] [--size BYTES] [--lasting MS]

confluent-kafka and our own client each send as fast as they can, to a broker of ours: plainly,
idempotent and acks=all, and in transactions of 100 ms.  The two take turns in one run, so that
what else the machine does hits both; the figure is the median ratio of neighbours.  Every message
counts once it is acknowledged and its transaction committed.  Buffers are small, with and without
transactions, so that a transaction does not grow by what still waits when its time is over.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import confluent_kafka

from waystation import Admin, Producer
from waystation.runtime.loops import run
from waystation.testing.process import BrokerProcess

REQUIRED = 0.9
_TURN = 200
_BUFFER_BYTES = 4 << 20


class Figure(NamedTuple):
    """What one load reached; plain ones count as a single transaction."""

    messages_per_s: float
    transactions: int
    seconds: float

    @property
    def lasting_ms(self) -> float:
        """How long a transaction took, from its begin to its end."""
        return self.seconds / self.transactions * 1_000


class Load(NamedTuple):
    """What is sent, for how long, and how it is cut into transactions."""

    bootstrap: str
    seconds: float
    size_bytes: int
    lasting_s: float


def confluent_plainly(load: Load, topic: str) -> Figure:
    """Acknowledged messages."""
    producer = confluent_kafka.Producer(_confluent_settings(load))
    producer.produce(topic, b"so that it has a producer id")
    producer.flush(60)
    began = time.perf_counter()
    sent = _confluent_sends(producer, topic, load.size_bytes, began + load.seconds)
    producer.flush(60)
    return _figure(sent, 1, began)


def confluent_in_transactions(load: Load, topic: str) -> Figure:
    """Committed messages."""
    producer = confluent_kafka.Producer(
        {**_confluent_settings(load), "transactional.id": f"bench-{topic}"}
    )
    producer.init_transactions(30)
    producer.list_topics(topic, 10)
    began, sent, ended = time.perf_counter(), 0, 0
    end = began + load.seconds
    while (now := time.perf_counter()) < end:
        producer.begin_transaction()
        sent += _confluent_sends(producer, topic, load.size_bytes, min(end, now + load.lasting_s))
        producer.commit_transaction(60)
        ended += 1
    return _figure(sent, ended, began)


def _confluent_settings(load: Load) -> dict[str, object]:
    return {
        "bootstrap.servers": load.bootstrap,
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 5,
        "partitioner": "random",
        "queue.buffering.max.kbytes": _BUFFER_BYTES >> 10,
    }


def _confluent_sends(
    producer: confluent_kafka.Producer, topic: str, size_bytes: int, until: float
) -> int:
    value, sent = b"v" * size_bytes, 0
    while time.perf_counter() < until:
        for _ in range(_TURN):
            try:
                producer.produce(topic, value)
            except BufferError:
                producer.poll(0.005)
                break
            sent += 1
        producer.poll(0)
    return sent


def ours_plainly(load: Load, topic: str) -> Figure:
    """Acknowledged messages."""

    async def work() -> Figure:
        async with Producer(load.bootstrap, buffer_bytes=_BUFFER_BYTES) as producer:
            await producer.partitions_of(topic)
            began = time.perf_counter()
            sent = await _our_sends(producer, topic, load.size_bytes, began + load.seconds)
            await producer.flush()
            return _figure(sent, 1, began)

    return run(work())


def ours_in_transactions(load: Load, topic: str) -> Figure:
    """Committed messages."""

    async def work() -> Figure:
        async with Producer(
            load.bootstrap, transactional_id=f"bench-{topic}", buffer_bytes=_BUFFER_BYTES
        ) as producer:
            await producer.partitions_of(topic)
            began, sent, ended = time.perf_counter(), 0, 0
            end = began + load.seconds
            while (now := time.perf_counter()) < end:
                async with producer.transaction():
                    until = min(end, now + load.lasting_s)
                    sent += await _our_sends(producer, topic, load.size_bytes, until)
                ended += 1
            return _figure(sent, ended, began)

    return run(work())


async def _our_sends(producer: Producer, topic: str, size_bytes: int, until: float) -> int:
    value, sent = b"v" * size_bytes, 0
    while time.perf_counter() < until:
        for _ in range(_TURN):
            producer.submit(topic, value)
        sent += _TURN
        await producer.drain()
    return sent


def _figure(sent: int, transactions: int, began: float) -> Figure:
    seconds = time.perf_counter() - began
    return Figure(sent / seconds, transactions, seconds)


Work = Callable[[Load, str], Figure]
CLIENTS: dict[str, tuple[Work, Work]] = {
    "confluent-kafka": (confluent_plainly, confluent_in_transactions),
    "waystation": (ours_plainly, ours_in_transactions),
}


def measure(client: str, load: Load, rounds: int, partitions: int) -> float:
    """Print each round and the median ratio, which is the result."""
    plainly, in_transactions = CLIENTS[client]
    ratios = []
    for number in range(rounds):
        topic = f"{client}-{number}"
        asyncio.run(_make(load.bootstrap, topic, partitions))
        if number % 2:
            plain, cut = plainly(load, topic), in_transactions(load, topic)
        else:
            cut, plain = in_transactions(load, topic), plainly(load, topic)
        ratios.append(cut.messages_per_s / plain.messages_per_s)
        print(
            f"{client:16} {plain.messages_per_s:10,.0f} msg/s plain, {cut.messages_per_s:10,.0f} "
            f"in {cut.transactions} transactions of {cut.lasting_ms:.0f} ms, {ratios[-1]:.2f}x"
        )
    middle = statistics.median(ratios)
    verdict = "reached" if middle >= REQUIRED else "missed"
    print(f"{client:16} median {middle:.2f}x of {len(ratios)}, {REQUIRED}x {verdict}")
    return middle


async def _make(bootstrap: str, topic: str, partitions: int) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", help="a broker that runs already")
    parser.add_argument("--client", choices=CLIENTS, help="only this one")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--lasting", type=float, default=100.0, help="ms of one transaction")
    parser.add_argument("--durability", choices=("disk", "memory"), default="disk")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        broker = BrokerProcess(Path(directory) / "data", options={"durability": chosen.durability})
        if not chosen.bootstrap:
            broker.start()
        load = Load(
            chosen.bootstrap or broker.bootstrap,
            chosen.seconds,
            chosen.size,
            chosen.lasting / 1_000,
        )
        try:
            for client in [chosen.client] if chosen.client else CLIENTS:
                measure(client, load, chosen.rounds, chosen.partitions)
        finally:
            if not chosen.bootstrap:
                broker.stop()


if __name__ == "__main__":
    main()
