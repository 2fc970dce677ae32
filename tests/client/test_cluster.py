"""Our own client in a cluster: brokers die, and nothing is lost, doubled or put out of order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.soak import count

from waystation import Admin, Consumer, Producer
from waystation.client.errors import BrokerUnreachableError
from waystation.cluster.parts import PartitionImage
from waystation.model.errors import ErrorCode
from waystation.testing.cluster import LocalCluster

PARTITIONS = 3
ROUNDS = count(1, 20)
LISTED = [("orders", number) for number in range(PARTITIONS)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path, options={"offsets.topic.num.partitions": "2"}) as running:
        async with Admin(running.bootstrap) as admin:
            await admin.create_topic("orders", PARTITIONS, replication_factor=3)
        yield running


class Writer:
    """Writes numbers for as long as it is let, one after the other in each partition."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, list[bytes]] = {one: [] for one in range(PARTITIONS)}
        self._bootstrap = bootstrap
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        async with Producer(self._bootstrap, linger_ms=1) as producer:
            await asyncio.gather(*(self._write(producer, one) for one in range(PARTITIONS)))

    async def _write(self, producer: Producer, partition: int) -> None:
        number = 0
        while not self._stopping.is_set():
            sent = [
                producer.send("orders", b"%d" % each, partition=partition)
                for each in range(number, number + 5)
            ]
            for receipt in await asyncio.gather(*sent):
                assert receipt.offset == number, f"partition {partition}: {receipt}"
                self.acknowledged[partition].append(b"%d" % number)
                number += 1


class Reader:
    """Reads everything, and remembers it by partition; a group may be given something again."""

    def __init__(self, consumer: Consumer, *, again: bool) -> None:
        self.seen: dict[int, list[bytes]] = {one: [] for one in range(PARTITIONS)}
        self._consumer, self._again = consumer, again

    async def run(self) -> None:
        while True:
            for message in await self._consumer.poll(timeout_ms=200):
                assert message.value is not None
                seen = self.seen[message.partition]
                if self._again and message.offset < len(seen):
                    assert seen[message.offset] == message.value
                    continue
                assert message.offset == len(seen), "twice, or not all"
                seen.append(message.value)


class Traffic:
    """A writer and a reader beside what happens to the cluster."""

    def __init__(self, cluster: LocalCluster, writer: Writer, reader: Reader) -> None:
        self._cluster, self._writer, self._reader = cluster, writer, reader
        self._tasks = [asyncio.create_task(one.run()) for one in (writer, reader)]

    async def goes_on(self) -> None:
        """Until every partition was written and read again."""
        before = {one: len(values) for one, values in self._writer.acknowledged.items()}

        def grown(now: dict[int, list[bytes]]) -> bool:
            self._check()
            return all(len(now[one]) > before[one] + 20 for one in before)

        await self._cluster.until(lambda: grown(self._writer.acknowledged), what="it is written")
        await self._cluster.until(lambda: grown(self._reader.seen), what="it is read")

    async def end(self) -> None:
        """Stop writing, and see that the reader has everything, once and in order."""
        writing, _ = self._tasks
        self._writer.stop()
        await writing
        written = self._writer.acknowledged
        await self._cluster.until(
            lambda: all(len(self._reader.seen[one]) >= len(written[one]) for one in written),
            what="all is read",
        )
        assert self._reader.seen == written

    async def abandon(self) -> None:
        self._writer.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()


@asynccontextmanager
async def traffic(
    cluster: LocalCluster, group: str | None = None, bootstrap: str | None = None
) -> AsyncIterator[Traffic]:
    at = bootstrap or cluster.bootstrap
    async with Consumer(group, bootstrap=at, auto_offset_reset="earliest") as consumer:
        if group is None:
            await consumer.assign(LISTED)
        else:
            await consumer.subscribe(["orders"])
        flowing = Traffic(cluster, Writer(at), Reader(consumer, again=group is not None))
        try:
            await flowing.goes_on()
            yield flowing
            await flowing.end()
        finally:
            await flowing.abandon()


async def in_sync_again(cluster: LocalCluster) -> None:
    def whole() -> bool:
        states = (cluster.partition(*where) for where in LISTED)
        return all(state is not None and len(state.in_sync) == 3 for state in states)

    await cluster.until(whole, what="all are in sync")


@pytest.mark.parametrize("group", [None, "readers"])
async def test_leaders_die_one_after_the_other(cluster: LocalCluster, group: str | None) -> None:
    async with traffic(cluster, group) as flowing:
        for _ in range(ROUNDS):
            victim = cluster.leader("orders", 0)
            assert victim is not None
            await cluster.kill(victim)
            await flowing.goes_on()
            await cluster.start(victim)
            await in_sync_again(cluster)
            await flowing.goes_on()


async def test_brokers_are_restarted_one_after_the_other(cluster: LocalCluster) -> None:
    async with traffic(cluster, "readers") as flowing:
        for number in cluster.ids:
            await cluster.restart(number)
            await in_sync_again(cluster)
            await flowing.goes_on()


async def test_the_only_broker_that_was_named_dies(cluster: LocalCluster) -> None:
    """Whoever once reached the cluster knows the others."""
    first = str(cluster.nodes[1].address)
    async with traffic(cluster, bootstrap=first) as flowing:
        await cluster.kill(1)
        await flowing.goes_on()


async def test_one_of_many_addresses_is_enough(cluster: LocalCluster) -> None:
    everywhere = cluster.bootstrap
    await cluster.kill(1)
    await cluster.kill(2)

    async with Admin(everywhere) as admin:
        await cluster.until(lambda: list(cluster.image.brokers) == [3])
        assert [one.node for one in (await admin.describe_cluster()).brokers] == [3]
    await cluster.kill(3)
    with pytest.raises(BrokerUnreachableError) as refused:
        await Admin(everywhere, metadata_timeout_ms=500).start()
    for address in everywhere.split(","):
        assert address in str(refused.value)


async def test_an_admin_goes_on_when_the_controller_dies(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        office = cluster.image.controller
        assert office is not None
        await cluster.kill(office.node)

        await admin.create_topic("next", 1, replication_factor=2)
        await admin.delete_topic("next")
        assert (await admin.describe_cluster()).cluster_id == cluster.image.cluster_id
        assert (await admin.cluster_status()).cluster_id == cluster.image.cluster_id


async def test_an_admin_elects_moves_and_drains(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("moving", assignments={0: [1, 2], 1: [2, 3]})
        moved = ("moving", 0)

        assert await admin.alter_reassignments({moved: [3, 2]}) == {moved: None}
        await cluster.until(lambda: list(state(cluster, *moved).replicas) == [3, 2])
        await cluster.until(lambda: not cluster.image.reassignments)
        await seen_by_all(cluster)
        assert await admin.list_reassignments() == {}
        refused = (await admin.alter_reassignments({moved: [9], ("moving", 7): [1]})).values()
        assert "broker 9 is not registered" in str(next(iter(refused)))

        if state(cluster, *moved).leader != 3:
            assert (await admin.elect_leaders([moved]))[moved] is None
            await seen_by_all(cluster)
        assert state(cluster, *moved).leader == 3
        again = (await admin.elect_leaders([moved]))[moved]
        assert again is not None
        assert again.code == ErrorCode.ELECTION_NOT_NEEDED

        drained = await admin.drain_broker(2)
        assert drained.replicas > 0
        await seen_by_all(cluster)
        status = await admin.cluster_status()
        assert [one.node for one in status.brokers if one.draining] == [2]
        await admin.undrain_broker(2)


async def test_an_admin_sees_how_the_cluster_is(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        status = await admin.cluster_status()

        assert status.healthy
        assert [one.node for one in status.brokers] == [1, 2, 3]
        assert all(one.log_dirs and one.log_dirs[0].usable_bytes > 0 for one in status.brokers)
        assert {one.node for one in await admin.describe_log_dirs()} == {1, 2, 3}

        await cluster.kill(3)
        await cluster.until(lambda: 3 not in cluster.image.brokers)
        await seen_by_all(cluster)
        status = await admin.cluster_status(limit=1)

        assert not status.healthy
        assert (status.under_replicated_count, len(status.under_replicated)) == (PARTITIONS, 1)
        dead = status.brokers[2]
        assert (dead.alive, dead.address, dead.log_dirs) == (False, None, None)


async def seen_by_all(cluster: LocalCluster) -> None:
    """Whichever broker is asked, it knows what any of them knows now."""
    newest = cluster.image.revision
    await cluster.until(
        lambda: all(one.broker.image.revision >= newest for one in cluster.nodes.values())
    )


def state(cluster: LocalCluster, topic: str, number: int) -> PartitionImage:
    found = cluster.partition(topic, number)
    assert found is not None
    return found
