"""Transactions of real clients over three brokers, some of which are killed between the steps.

Each transaction writes to partitions that three brokers lead, and its coordinator is one of them.
Whoever dies, and whenever: what was committed is there in all partitions, what was aborted in none.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.apis.clustering import ThreadedCluster
from tests.clients.transactional import WRITERS, Writer
from waystation import Consumer
from waystation.broker.posts import partition_of
from waystation.broker.transactions import STATE_TOPIC

CLIENTS = ("confluent", "aiokafka", "waystation")
PARTITIONS = 3
STATES = 6
OPTIONS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": str(STATES),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedCluster]:
    with ThreadedCluster(tmp_path_factory.mktemp("cluster"), options=OPTIONS) as running:
        yield running


@pytest.fixture
def orders(cluster: ThreadedCluster, topic: str) -> str:
    cluster.create(topic, [1, 2, 3], [2, 3, 1], [3, 1, 2])
    return topic


class Trade:
    """One client's transaction, begun, written to every partition, and still to be ended."""

    def __init__(self, bootstrap: str, client: str, topic: str, *, commit: bool) -> None:
        self.name = f"{topic}-{client}-{'commit' if commit else 'abort'}"
        self.commit = commit
        self._topic = topic
        self._writer: Writer = WRITERS[client](bootstrap, self.name)

    def begin(self) -> None:
        self._writer.__enter__()
        self._writer.begin()
        self.write("before")

    def write(self, when: str) -> None:
        for partition in range(PARTITIONS):
            self._writer.send(self._topic, f"{self.name} {when}".encode(), partition=partition)

    def end(self) -> None:
        if self.commit:
            self._writer.commit()
        else:
            self._writer.abort()

    def go_on(self) -> None:
        """Write again, commit or abort, and do the same in a next transaction."""
        self.write("after")
        self._writer.send_offsets(f"{self.name}-group", self._topic, 7)
        self.end()
        self._writer.begin()
        self.write("next")
        self.end()

    def close(self) -> None:
        self._writer.__exit__(None, None, None)

    @property
    def values(self) -> list[str]:
        words = ("before", "after", "next") if self.commit else ()
        return [f"{self.name} {word}" for word in words]


def trades(cluster: ThreadedCluster, topic: str) -> list[Trade]:
    return [
        Trade(cluster.bootstrap, client, topic, commit=commit)
        for client in CLIENTS
        for commit in (True, False)
    ]


def read(bootstrap: str, topic: str, count: int) -> list[list[str]]:
    """What readers of committed records find in each partition, until all is there and stable."""

    async def read() -> list[list[str]]:
        found: list[list[str]] = [[] for _ in range(PARTITIONS)]
        async with Consumer(bootstrap=bootstrap, isolation="read_committed") as consumer:
            await consumer.assign([(topic, number) for number in range(PARTITIONS)])
            async with asyncio.timeout(20):
                while min(map(len, found)) < count:
                    for one in await consumer.poll(timeout_ms=500):
                        found[one.partition].append((one.value or b"").decode())
            # Nothing is to follow: neither a duplicate nor what was aborted.
            for one in await consumer.poll(timeout_ms=100):
                found[one.partition].append((one.value or b"").decode())
        return found

    return asyncio.run(read())


def committed(bootstrap: str, group: str, topic: str) -> int | None:
    async def ask() -> int | None:
        async with Consumer(group, bootstrap=bootstrap, auto_commit=False) as consumer:
            found = (await consumer.committed([(topic, 0)]))[(topic, 0)]  # type: ignore[index]
            return None if found is None else found.offset

    return asyncio.run(ask())


def coordinator_of(cluster: ThreadedCluster, name: str) -> int:
    leader = cluster.image.topics[STATE_TOPIC].partitions[partition_of(name, STATES)].leader
    assert leader is not None
    return leader


@pytest.mark.parametrize("victims", ["coordinator", "leader", "both"])
def test_a_transaction_over_three_brokers_is_whole_whoever_dies(
    cluster: ThreadedCluster, orders: str, victims: str
) -> None:
    everyone = trades(cluster, orders)
    with ThreadPoolExecutor(len(everyone)) as threads:
        list(threads.map(Trade.begin, everyone))
        coordinator = coordinator_of(cluster, everyone[0].name)
        leader = next(one for one in (1, 2, 3) if one != coordinator)
        dying = {"coordinator": [coordinator], "leader": [leader], "both": [coordinator, leader]}
        for number in dying[victims]:
            cluster.wait_for(cluster.local.kill(number))
        going_on = [threads.submit(one.go_on) for one in everyone]
        if victims == "both":
            # One of three can commit nothing: what was begun waits until there are two.
            cluster.start(coordinator)
        for one in going_on:
            one.result(60)
    for number in dying[victims]:
        if number not in cluster.local.nodes:
            cluster.start(number)

    expected = sorted(value for one in everyone for value in one.values)
    for found in read(cluster.bootstrap, orders, len(expected)):
        assert sorted(found) == expected
    for one in everyone:
        offset = 7 if one.commit else None
        assert committed(cluster.bootstrap, f"{one.name}-group", orders) == offset
        one.close()
