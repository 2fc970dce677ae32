"""Three brokers hold the same records, lose a leader, and lose nothing that was acknowledged."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from waystation.client.admin import Admin
from waystation.client.consumer import Consumer
from waystation.client.producer import Producer
from waystation.model.errors import NotEnoughReplicasAfterAppendError, NotEnoughReplicasError
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.node.node import Node
from waystation.partition.partition import Partition
from waystation.records.batch import BatchBuilder
from waystation.records.compression import Codec
from waystation.records.control import Marker
from waystation.testing.cluster import LocalCluster

TOPIC = "orders"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    options = {"replica.lag.time.max.ms": "1000"}
    async with LocalCluster(tmp_path, 3, options=options) as cluster:
        await cluster.until(lambda: all(len(n.broker.image.brokers) == 3 for n in nodes(cluster)))
        yield cluster


def nodes(cluster: LocalCluster) -> list[Node]:
    return list(cluster.nodes.values())


def replica(cluster: LocalCluster, node: int, number: int = 0) -> Partition:
    return cluster.nodes[node].broker.replicas.get(TOPIC, number)


def marks(cluster: LocalCluster, number: int = 0) -> set[int]:
    return {replica(cluster, node, number).high_watermark for node in cluster.nodes}


def stored(cluster: LocalCluster, node: int, number: int = 0) -> bytes:
    folder = cluster.folder / f"node-{node}" / f"{TOPIC}-{number}"
    return b"".join(one.read_bytes() for one in sorted(folder.glob("*.log")))


async def made(cluster: LocalCluster, partitions: int = 1, **configs: str) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions, replication_factor=3, configs=configs)
    held = [
        (node.broker.replicas, number) for node in nodes(cluster) for number in range(partitions)
    ]
    await cluster.until(lambda: all(some.find(TOPIC, number) for some, number in held))


async def all_in_sync(cluster: LocalCluster) -> None:
    def full() -> bool:
        topic = cluster.image.topics[TOPIC]
        return all(len(one.in_sync) == 3 for one in topic.partitions)

    await cluster.until(full, what="everyone in sync")


async def read(cluster: LocalCluster, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with Consumer(None, [TOPIC], bootstrap=cluster.bootstrap, start="earliest") as consumer:
        async with asyncio.timeout(15):
            while len(found) < count:
                found += [one.value for one in await consumer.poll(200)]
    return found


@pytest.mark.parametrize("durability", ["disk", "memory"])
async def test_all_replicas_hold_the_same_bytes(cluster: LocalCluster, durability: str) -> None:
    await made(cluster, 2, **{"durability": durability, "min.insync.replicas": "2"})
    async with Producer(cluster.bootstrap, acks="all") as producer:
        sent = [producer.submit(TOPIC, f"value {n}", key=str(n)) for n in range(500)]
        await producer.flush()
        offsets = [(await one).offset for one in sent]

    assert len(offsets) == 500
    for number in range(2):
        ends = {replica(cluster, node, number).log_end for node in cluster.nodes}
        copies = {stored(cluster, node, number) for node in cluster.nodes}

        assert len(ends) == 1
        assert len(copies) == 1
        await cluster.until(lambda: marks(cluster, number) == ends)  # noqa: B023
    assert len(await read(cluster, 500)) == 500


async def test_a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost(
    cluster: LocalCluster,
) -> None:
    await made(cluster, 1, **{"min.insync.replicas": "2"})
    async with Producer(cluster.bootstrap, acks="all", delivery_timeout_ms=20_000) as producer:
        acknowledged = [(await producer.send(TOPIC, f"before {n}")).offset for n in range(20)]
        first = cluster.leader(TOPIC)
        assert first is not None
        await cluster.kill(first)
        acknowledged += [(await producer.send(TOPIC, f"after {n}")).offset for n in range(20)]

        assert acknowledged == list(range(40))
        assert cluster.leader(TOPIC) != first
        await cluster.start(first)
        await all_in_sync(cluster)
        await producer.send(TOPIC, "all of us")
    values = [b"before %d" % n for n in range(20)] + [b"after %d" % n for n in range(20)]

    assert await read(cluster, 41) == [*values, b"all of us"]
    await cluster.until(lambda: len({stored(cluster, node) for node in cluster.nodes}) == 1)


async def test_a_tail_that_nobody_acknowledged_is_cut(cluster: LocalCluster) -> None:
    await made(cluster, 1, **{"min.insync.replicas": "2"})
    async with Producer(cluster.bootstrap, acks="all") as producer:
        await producer.send(TOPIC, "kept")
    first = cluster.leader(TOPIC)
    assert first is not None
    others = [node for node in cluster.nodes if node != first]
    for node in others:
        await cluster.nodes[node].broker.followers.aclose()
    led = replica(cluster, first)
    batch = BatchBuilder()
    batch.append(None, b"never seen", timestamp=0)
    led.append(memoryview(bytearray(batch.build())), 1, Millis(0))

    assert (led.log_end, led.high_watermark) == (2, 1)
    await cluster.kill(first)
    await cluster.until(lambda: cluster.leader(TOPIC) in others)
    async with Producer(cluster.bootstrap, acks=1) as producer:
        assert (await producer.send(TOPIC, "instead")).offset == 1
    await cluster.start(first)
    await cluster.until(lambda: replica(cluster, first).log_end == 2)
    leader = cluster.leader(TOPIC)
    assert leader is not None

    await cluster.until(lambda: stored(cluster, first) == stored(cluster, leader))


async def test_a_producer_is_idempotent_through_a_failover(cluster: LocalCluster) -> None:
    await made(cluster, 1, **{"min.insync.replicas": "2"})
    batch = BatchBuilder(Codec.NONE, ProducerId(7), ProducerEpoch(0), 0)
    batch.append(None, b"once", timestamp=0)
    sent = batch.build()
    first = cluster.leader(TOPIC)
    assert first is not None
    appended = replica(cluster, first).append(memoryview(bytearray(sent)), -1, Millis(0))
    await cluster.until(lambda: replica(cluster, first).high_watermark == 1)
    await cluster.kill(first)
    await cluster.until(lambda: cluster.leader(TOPIC) not in (first, None))
    second = cluster.leader(TOPIC)
    assert second is not None
    await cluster.until(lambda: replica(cluster, second).leading)
    again = replica(cluster, second).append(memoryview(bytearray(sent)), -1, Millis(0))

    assert again.duplicate
    assert again.base_offset == appended.base_offset


async def test_a_replica_that_lags_leaves_the_set_and_returns(cluster: LocalCluster) -> None:
    await made(cluster, 1, **{"min.insync.replicas": "2"})
    leader = cluster.leader(TOPIC)
    lagging = next(node for node in cluster.nodes if node != leader)
    assert leader is not None
    async with Producer(cluster.bootstrap, acks="all") as producer:
        await producer.send(TOPIC, "with everyone")
        cluster.cut(lagging, leader)
        await producer.send(TOPIC, "without it")
        state = cluster.partition(TOPIC)

        assert state is not None
        assert lagging not in state.in_sync
        cluster.mend()
        await all_in_sync(cluster)
        await producer.send(TOPIC, "with it")

    assert len({stored(cluster, node) for node in cluster.nodes}) == 1


async def test_too_few_replicas_are_told_before_and_after_the_append(
    cluster: LocalCluster,
) -> None:
    await made(cluster, 1, **{"min.insync.replicas": "3"})
    leader = cluster.leader(TOPIC)
    lagging = next(node for node in cluster.nodes if node != leader)
    assert leader is not None
    async with Producer(cluster.bootstrap, acks="all") as producer:
        await producer.send(TOPIC, "with everyone")
    cluster.cut(lagging, leader)
    led, heard = replica(cluster, leader), list[object]()
    batch = BatchBuilder()
    batch.append(None, b"waits", timestamp=0)
    led.append(memoryview(bytearray(batch.build())), -1, Millis(0))

    assert not led.when_committed(led.log_end, heard.append)
    await cluster.until(lambda: heard)
    assert isinstance(heard[0], NotEnoughReplicasAfterAppendError)
    with pytest.raises(NotEnoughReplicasError):
        led.append(memoryview(bytearray(batch.build())), -1, Millis(0))
    cluster.mend()
    await all_in_sync(cluster)
    await cluster.until(lambda: led.high_watermark == 2)


async def test_a_new_leader_knows_open_and_aborted_transactions(cluster: LocalCluster) -> None:
    await made(cluster, 1, **{"min.insync.replicas": "2"})
    first = cluster.leader(TOPIC)
    assert first is not None
    led = replica(cluster, first)
    for producer in (7, 8):
        batch = BatchBuilder(
            Codec.NONE, ProducerId(producer), ProducerEpoch(0), 0, is_transactional=True
        )
        batch.append(None, b"undecided", timestamp=0)
        led.append(memoryview(bytearray(batch.build())), -1, Millis(0))
    led.append_marker(Marker(ProducerId(7), ProducerEpoch(0), 0, committed=False), Millis(0))
    await cluster.until(lambda: marks(cluster) == {3})

    before = (led.last_stable, led.log.aborted(Offset(0), Offset(3)), led.open_transactions())
    followers = [replica(cluster, node) for node in cluster.nodes if node != first]
    for one in followers:
        assert one.last_stable == 1
        assert one.log.aborted(Offset(0), Offset(3)) == before[1]
    await cluster.kill(first)
    await cluster.until(lambda: any(one.leading for one in followers))
    second = next(one for one in followers if one.leading)
    await cluster.until(lambda: second.settled)

    after = (second.last_stable, second.log.aborted(Offset(0), Offset(3)))
    assert after == before[:2]
    assert [one.producer_id for one in second.open_transactions()] == [8]
    assert second.in_transaction(ProducerId(8), ProducerEpoch(0))


@pytest.mark.parametrize("leads", [True, False])
async def test_a_replica_whose_disk_failed_is_given_up_at_once(
    cluster: LocalCluster, leads: bool
) -> None:
    await made(cluster, 1, **{"min.insync.replicas": "2"})
    leader = cluster.leader(TOPIC)
    assert leader is not None
    broken = leader if leads else next(node for node in cluster.nodes if node != leader)
    async with Producer(cluster.bootstrap, acks="all") as producer:
        await producer.send(TOPIC, "before")
        replica(cluster, broken).log.directory.fail("it fell from the table")
        sent = await producer.send(TOPIC, "after")

    state = cluster.partition(TOPIC)
    assert sent.offset == 1
    assert state is not None
    assert broken not in state.in_sync
    assert state.leader != broken
    assert await read(cluster, 2) == [b"before", b"after"]
    # It does not come back and go again: nobody asks in its name any more.
    settled = cluster.image.revision
    await asyncio.sleep(1.0)
    assert cluster.image.revision == settled


async def test_a_moved_replica_copies_from_the_start_and_leaves_nothing_behind(
    cluster: LocalCluster,
) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(TOPIC, assignments={0: [1, 2]})
        async with Producer(cluster.bootstrap, acks="all") as producer:
            for n in range(50):
                await producer.send(TOPIC, f"value {n}")
            for target in ([1, 3], [3, 2], [1, 2]):
                await admin.alter_reassignments({(TOPIC, 0): target})
                await cluster.until(
                    lambda: _placed(cluster, target),  # noqa: B023
                    what=f"moved to {target}",
                )
                await producer.send(TOPIC, f"at {target}")
                gone = next(node for node in cluster.nodes if node not in target)
                await cluster.until(lambda: not stored(cluster, gone))  # noqa: B023
                assert stored(cluster, target[0]) == stored(cluster, target[1])

    assert len(await read(cluster, 53)) == 53
    # What the journals hold of replicas that went must not come back with a crash.
    for node in (1, 2):
        await cluster.kill(node)
    for node in (1, 2):
        await cluster.start(node)
    assert len(await read(cluster, 53)) == 53
    await cluster.until(lambda: stored(cluster, 1) == stored(cluster, 2))


def _placed(cluster: LocalCluster, target: list[int]) -> bool:
    state = cluster.partition(TOPIC)
    return (
        state is not None
        and list(state.replicas) == target
        and sorted(state.in_sync) == sorted(target)
        and not cluster.image.reassignments
    )
