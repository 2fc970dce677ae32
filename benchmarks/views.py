"""Views on a real broker: ``python -m benchmarks.views [--quick]``.

1. One message of a hundred matches, of 1 KB each: how many bytes a view delivers compared with its
   topic, and whether they are exactly the matching messages, in order.
2. How many records a second of the broker's CPU time are looked through, by key and headers and by
   fields of JSON; everything is in it, from the log to the socket.
3. How long a producer of single messages waits while readers look through views without a pause,
   beside how long it waits when nobody does.

``FLOORS`` and ``WAIT_MS`` are what must be reached.  Batches are of 16 KB, as Java's producers send
them, and of 1 MB, as librdkafka's may.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from tests.apis.asking import Asking
from tests.apis.kit import batch_of

from benchmarks.filters import document
from waystation import Admin
from waystation.client.raw import PartitionReader
from waystation.client.router import Router
from waystation.client.settings import ConnectionSettings, ConsumerSettings
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset
from waystation.records.batch import rows_of
from waystation.runtime.loops import run
from waystation.testing.process import BrokerProcess

KEY_FLOOR, JSON_FLOOR = 300_000, 100_000
FEWER_BYTES = 0.9
WAIT_MS = 10.0
BATCHES = {"16 KB": 16 << 10, "1 MB": 1 << 20}
VIEWS = (
    ("by key and headers", KEY_FLOOR, "key LIKE 'customer-%' AND headers.kind = 'refund'", 5),
    ("by a field of JSON", JSON_FLOOR, "value.customer.country = 'DE'", 17),
    ("by two fields of JSON", JSON_FLOOR, "value.currency = 'EUR' AND value.amount >= 9900", None),
)
_FETCH_BYTES = 8 << 20


class Read(NamedTuple):
    """What came of reading a topic or view from its beginning to its end."""

    offsets: list[int]
    nbytes: int
    answers: int
    seconds: float


class Waits(NamedTuple):
    """How long a producer waited, in milliseconds."""

    median: float
    p99: float
    longest: float
    count: int

    def __str__(self) -> str:
        return (
            f"median {self.median:.2f} ms, p99 {self.p99:.2f} ms, longest {self.longest:.2f} ms "
            f"of {self.count}"
        )


def fill(bootstrap: str, topic: str, batch_bytes: int, count: int) -> None:
    """Send orders of about 1 KB with a key and three headers."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "batch.size": batch_bytes, "linger.ms": 50, "acks": 1}
    )
    for number in range(count):
        kind = b"refund" if number % 100 == 5 else b"order"
        headers = [("source", b"shop"), ("kind", kind), ("attempt", b"%d" % (number % 100))]
        key = b"customer-%d" % (number % 1_000)
        while True:
            try:
                producer.produce(topic, document(number), key, partition=0, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    assert not left, f"{left} messages were not sent"


async def read(bootstrap: str, topic: str, *, decode: bool = True) -> Read:
    """Read partition 0 to its end."""
    settings = ConsumerSettings(fetch_max_wait_ms=500)
    router = Router(bootstrap, ConnectionSettings())
    reader = PartitionReader(router, settings, TopicPartition(topic, 0))
    began = time.perf_counter()
    await reader.open()
    position, nbytes, answers = Offset(0), 0, 0
    offsets: list[int] = []
    try:
        while True:
            found = await reader.fetch(position, _FETCH_BYTES)
            answers, nbytes = answers + 1, nbytes + len(found.records)
            if decode:
                offsets += [row[0] for at, _ in found.batches for row in rows_of(found.records, at)]
            position = found.next_offset or position
            if position >= found.high_watermark:
                return Read(offsets, nbytes, answers, time.perf_counter() - began)
    finally:
        await router.close()


def cpu_seconds(pid: int) -> float:
    """What the process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_views(broker: BrokerProcess, size: str, topic: str, count: int) -> bool:
    """One line per view; whether all of them reach their floors."""
    source = run(read(broker.bootstrap, topic, decode=False))
    print(f"--- {count} records, {source.nbytes / count:.0f} B each, batches of {size}")
    reached = True
    for number, (name, floor, where, remainder) in enumerate(VIEWS):
        view = f"{topic}-view-{number}"
        make_view(broker, view, topic, where)
        before = cpu_seconds(broker.pid)
        found = run(read(broker.bootstrap, view))
        used = cpu_seconds(broker.pid) - before
        again_from = cpu_seconds(broker.pid)
        again = run(read(broker.bootstrap, view))
        again_used = cpu_seconds(broker.pid) - again_from
        right = found.offsets == again.offsets == expected(remainder, count)
        fewer = 1 - found.nbytes / source.nbytes
        rate = count / max(used, 0.01)
        reached = reached and right and rate >= floor and fewer >= FEWER_BYTES
        print(
            f"  {name:24}{rate:>12,.0f} records/s of CPU{rate / floor:>6.1f}x of {floor:,}"
            f"{len(found.offsets) / count:>8.2%} match{fewer:>8.1%} fewer bytes, "
            f"{'exactly those' if right else 'WRONG'}, {found.answers} answers in "
            f"{found.seconds:.2f} s, again {again_used:.2f} s of CPU"
        )
    return reached


def expected(remainder: int | None, count: int) -> list[int]:
    """The offsets that match."""
    if remainder is None:
        return [n for n in range(count) if n * 7_919 % 10_000 >= 9_900]
    return list(range(remainder, count, 100))


def make_view(broker: BrokerProcess, view: str, topic: str, where: str) -> None:
    """Make one, which nobody has read."""

    async def make() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_view(view, topic, where)

    run(make())


# --- how long others wait -------------------------------------------------------------------------


def wait_for_produce(bootstrap: str, seconds: float) -> Waits:
    """Produce single messages of 1 KB, one at a time."""
    host, _, port = bootstrap.partition(":")
    batch = batch_of(b"x" * 1_000)
    waits = []
    with Asking(host, int(port)) as client:
        ends = time.perf_counter() + seconds
        while (began := time.perf_counter()) < ends:
            told = client.produce("beside", batch, acks=1)
            waits.append((time.perf_counter() - began) * 1_000)
            assert not told.error_code, told
            time.sleep(0.001)
    cut = statistics.quantiles(waits, n=100)
    return Waits(statistics.median(waits), cut[98], max(waits), len(waits))


def read_for_ever(bootstrap: str, topic: str, where: str, number: int) -> None:
    """Look through views that nobody has looked through before, one after the other."""

    async def forever() -> None:
        async with Admin(bootstrap) as admin:
            for turn in range(1_000_000):
                view = f"{topic}-busy-{number}-{turn}"
                await admin.create_view(view, topic, where)
                await read(bootstrap, view, decode=False)
                await admin.delete_view(view)

    asyncio.run(forever())


def measure_waits(broker: BrokerProcess, size: str, topic: str, seconds: float) -> bool:
    """How long a producer waits beside readers of views."""
    quiet = wait_for_produce(broker.bootstrap, seconds)
    readers = [
        multiprocessing.Process(
            target=read_for_ever, args=(broker.bootstrap, topic, where, number), daemon=True
        )
        for number, (_, _, where, _) in enumerate(VIEWS[:2])
    ]
    for one in readers:
        one.start()
    time.sleep(1.0)
    before = cpu_seconds(broker.pid)
    busy = wait_for_produce(broker.bootstrap, seconds)
    used = cpu_seconds(broker.pid) - before
    for one in readers:
        one.kill()
        one.join()
    print(f"--- a producer of single messages beside two readers of views, batches of {size}")
    print(f"  nobody reads:   {quiet}")
    print(f"  views are read: {busy}; the broker used {used / seconds:.0%} of a core")
    return busy.p99 < WAIT_MS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a look, not a result")
    parser.add_argument("--records", type=int, help="how many messages of 1 KB")
    parser.add_argument("--data-dir", type=Path, help="where the broker's log is")
    given = parser.parse_args()
    count = given.records or (20_000 if given.quick else 400_000)
    seconds = 3.0 if given.quick else 20.0
    reached = []
    with tempfile.TemporaryDirectory(dir=given.data_dir) as folder:
        options = {"durability": "memory"}
        with BrokerProcess(Path(folder) / "data", options=options).start() as broker:
            prepare(broker, count)
            for size in BATCHES:
                topic = f"orders-{BATCHES[size]}"
                reached.append(measure_views(broker, size, topic, count))
                reached.append(measure_waits(broker, size, topic, seconds))
    sys.exit(0 if all(reached) else "a floor is not reached")


def prepare(broker: BrokerProcess, count: int) -> None:
    """The topics that everything is about."""

    async def make() -> None:
        async with Admin(broker.bootstrap) as admin:
            for topic in ("beside", *(f"orders-{one}" for one in BATCHES.values())):
                await admin.create_topic(topic, 1)

    run(make())
    for batch_bytes in BATCHES.values():
        fill(broker.bootstrap, f"orders-{batch_bytes}", batch_bytes, count)


if __name__ == "__main__":
    main()
