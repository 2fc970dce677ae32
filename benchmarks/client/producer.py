"""How many messages of 100 B one process sends through ``submit``, and what a call costs.

    python -m benchmarks.client.producer [--bootstrap HOST:PORT] [--count N]

Without --bootstrap it starts a broker of ours for the run.
"""

import argparse
import tempfile
import time
from pathlib import Path

from waystation import Consumer, Producer
from waystation.client.partitioner import partition_of_key
from waystation.runtime.loops import run
from waystation.testing.process import BrokerProcess

_TURN = 500


async def produced(bootstrap: str, topic: str, count: int, keys: int, codec: str) -> float:
    """Messages a second, all of them acknowledged, with so many keys or none."""
    value = b"v" * 100
    async with Producer(bootstrap, compression=codec) as producer:
        await producer.send(topic, value)
        began = time.perf_counter()
        for number in range(count):
            producer.submit(topic, value, key=b"customer-%07d" % (number % keys) if keys else None)
            if number % _TURN == 0:
                await producer.drain()
        await producer.flush()
        return count / (time.perf_counter() - began)


async def consumed(bootstrap: str, topic: str, max_messages: int) -> float:
    """Messages a second through ``poll``, or through ``async for`` if ``max_messages`` is 1."""
    async with Consumer(topics=topic, bootstrap=bootstrap) as consumer:
        end = sum((await consumer.end_offsets()).values())
        began, read = time.perf_counter(), 0
        if max_messages == 1:
            async for _ in consumer:
                read += 1
                if read == end:
                    break
        while read < end:
            read += len(await consumer.poll(max_messages=max_messages))
        return end / (time.perf_counter() - began)


def cost_of_hashing(distinct: int, rounds: int = 50_000) -> float:
    """Microseconds per key, where so many different ones come in turn."""
    keys = [b"customer-%07d" % number for number in range(distinct)]
    began = time.perf_counter()
    for number in range(rounds):
        partition_of_key(keys[number % distinct], 6)
    return (time.perf_counter() - began) / rounds * 1e6


async def measure(bootstrap: str, count: int) -> None:
    """Print one line per case."""
    print(f"partition of a key     {cost_of_hashing(1_000):10.2f} µs, among 1,000")
    print(f"partition of a key     {cost_of_hashing(50_000):10.2f} µs, never seen before")
    for label, keys, codec in (
        ("submit", 0, "none"),
        ("submit with 1000 keys", 1_000, "none"),
        ("submit with lz4", 0, "lz4"),
        ("submit with zstd", 0, "zstd"),
    ):
        topic = label.replace(" ", "-")
        rate = await produced(bootstrap, topic, count, keys, codec)
        print(f"{label:22} {rate:10,.0f} msg/s of 100 B, acks=all, idempotent")
    for label, max_messages in (("poll of 100", 100), ("poll of 1000", 1000), ("async for", 1)):
        rate = await consumed(bootstrap, "submit", max_messages)
        print(f"{label:22} {rate:10,.0f} msg/s of 100 B")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap")
    parser.add_argument("--count", type=int, default=300_000)
    arguments = parser.parse_args()
    if arguments.bootstrap:
        run(measure(arguments.bootstrap, arguments.count))
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory) / "data") as broker,
    ):
        run(measure(broker.bootstrap, arguments.count))


if __name__ == "__main__":
    main()
