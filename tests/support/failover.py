"""How long clients wait when a broker goes: for what it led, for what it copied, for the rest.

``Probe`` writes one small record after the other to each partition, with ``acks=all``, and notes
when each was acknowledged: the longest time without is what a client waited.
"""

import asyncio
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.cluster import ProcessCluster
from waystation.client.producer import Producer
from waystation.model.errors import WaystationError
from waystation.runtime.loops import run

TOPIC = "probed"
PARTITIONS = 6
"""Two replicas on three brokers: each leads two of them, follows in two, and has no part in two."""
LAID_OUT = {0: [1, 2], 1: [2, 3], 2: [3, 1], 3: [1, 3], 4: [2, 1], 5: [3, 2]}
_EVERY_S = 0.02
_SETTLED_S = 0.5
_WITHIN_S = 60.0


class Pauses(NamedTuple):
    """The longest that clients waited, in seconds, by what the broker was to the partition."""

    led: float
    followed: float
    apart: float


class Probe:
    """Writes to every partition of a topic, in a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._acknowledged: list[list[float]] = [[] for _ in range(partitions)]
        self._over = False
        self._thread = threading.Thread(target=lambda: run(self._probe()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.all_after(time.monotonic())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over = True
        self._thread.join(_WITHIN_S)

    def all_after(self, moment_s: float) -> None:
        """Wait until every partition has acknowledged something that late."""
        deadline = time.monotonic() + _WITHIN_S
        while not all(times and times[-1] > moment_s for times in self._acknowledged):
            silent = [n for n, times in enumerate(self._acknowledged) if times[-1:] <= [moment_s]]
            assert time.monotonic() < deadline, f"no answers from {silent}"
            time.sleep(_EVERY_S)

    def longest_s(self, partition: int, since_s: float) -> float:
        """The longest time without an acknowledgement, from the one before ``since_s`` on."""
        times = self._acknowledged[partition]
        seen = times[max(bisect_left(times, since_s) - 1, 0) :]
        return max(after - before for before, after in pairwise(seen))

    async def _probe(self) -> None:
        await asyncio.gather(*map(self._write, range(len(self._acknowledged))))

    async def _write(self, partition: int) -> None:
        """With a producer of its own: replies to one client come in the order of its requests."""
        async with Producer(self._bootstrap, linger_ms=0) as producer:
            while not self._over:
                with suppress(WaystationError):
                    await producer.send(self._topic, b"probe", partition=partition)
                    self._acknowledged[partition].append(time.monotonic())
                await asyncio.sleep(_EVERY_S)


def lay_out(cluster: ProcessCluster) -> None:
    """Make the topic that is probed."""
    cluster.ask(lambda admin: admin.create_topic(TOPIC, assignments=LAID_OUT))


def balanced(cluster: ProcessCluster) -> bool:
    """Whether all replicas are in sync and those lead who should."""
    drawn = cluster.topic(TOPIC).partitions
    return all(
        one.leader == one.replicas[0] and len(one.in_sync) == len(one.replicas) for one in drawn
    )


def balance(cluster: ProcessCluster) -> None:
    """Wait until everything is as it was laid out."""

    def done() -> bool:
        cluster.ask(lambda admin: admin.elect_leaders())
        return balanced(cluster)

    cluster.until(done, _WITHIN_S, "all lead again who led at first")


def pauses_of_a_kill(cluster: ProcessCluster, number: int) -> Pauses:
    """Kill a broker, and start it again once everybody was served."""
    with Probe(cluster.bootstrap, TOPIC, PARTITIONS) as probe:
        time.sleep(_SETTLED_S)
        began = time.monotonic()
        cluster.kill(number)
        probe.all_after(time.monotonic())
        time.sleep(_SETTLED_S)
        found = _pauses(probe, number, began)
    cluster.start(number)
    balance(cluster)
    return found


def pauses_of_a_stop(cluster: ProcessCluster, number: int) -> Pauses:
    """Stop a broker cleanly, and start it again."""
    with Probe(cluster.bootstrap, TOPIC, PARTITIONS) as probe:
        time.sleep(_SETTLED_S)
        began = time.monotonic()
        assert cluster.stop(number) == 0
        probe.all_after(time.monotonic())
        time.sleep(_SETTLED_S)
        found = _pauses(probe, number, began)
    cluster.start(number)
    balance(cluster)
    return found


def failover_of_many(cluster: ProcessCluster, topic: str, partitions: int) -> float:
    """Kill the broker that leads all of many partitions; when the last of them serves again."""
    laid_out = {number: [1, 2, 3] for number in range(partitions)}
    cluster.ask(lambda admin: admin.create_topic(topic, assignments=laid_out))
    _write_to_all(cluster, topic, range(partitions))
    began = time.monotonic()
    cluster.kill(1)
    _write_to_all(cluster, topic, range(partitions))
    took = time.monotonic() - began
    cluster.start(1)
    return took


def _write_to_all(cluster: ProcessCluster, topic: str, partitions: Iterable[int]) -> None:
    async def writing() -> None:
        async with Producer(cluster.bootstrap) as producer:
            for number in partitions:
                producer.submit(topic, b"probe", partition=number)
            await producer.flush()

    run(writing())


def _pauses(probe: Probe, number: int, began: float) -> Pauses:
    def worst(partitions: Sequence[int]) -> float:
        return max(probe.longest_s(one, began) for one in partitions)

    return Pauses(
        worst([one for one, replicas in LAID_OUT.items() if replicas[0] == number]),
        worst([one for one, replicas in LAID_OUT.items() if replicas[1] == number]),
        worst([one for one, replicas in LAID_OUT.items() if number not in replicas]),
    )
