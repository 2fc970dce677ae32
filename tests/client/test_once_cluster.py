"""Idempotency keys where logs part: what no leader has was never sent, whoever leads next."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from waystation import Admin, Producer
from waystation.client.errors import ClosedError
from waystation.client.once import IdempotencyConflictError
from waystation.model.ids import TopicPartition
from waystation.records.once import hash_of
from waystation.testing.cluster import LocalCluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path) as running:
        async with Admin(running.bootstrap) as admin:
            await admin.create_topic("orders", 1, replication_factor=3)
        yield running


def ends_at(cluster: LocalCluster, node: int) -> int:
    partition = cluster.nodes[node].broker.replicas.find("orders", 0)
    return -1 if partition is None else partition.log.log_end


def knows(cluster: LocalCluster, node: int, key: bytes) -> int | None:
    partition = cluster.nodes[node].broker.replicas.find("orders", 0)
    found = None if partition is None else partition.log.once.find(hash_of(key))
    return None if found is None else found.offset


def in_sync(cluster: LocalCluster, topic: str = "orders") -> tuple[int, ...]:
    partition = cluster.partition(topic)
    return () if partition is None else partition.in_sync


@pytest.mark.timeout(120)
async def test_a_key_whose_message_was_cut_off_is_free_again(cluster: LocalCluster) -> None:
    first = cluster.leader("orders")
    assert first is not None
    others = [one for one in cluster.ids if one != first]
    async with Producer(cluster.bootstrap) as producer:
        before = await producer.send("orders", b"0", idempotency_key="before")
    for other in others:
        cluster.cut(other, first)
    gone = await Producer(cluster.bootstrap).start()
    lost = asyncio.ensure_future(gone.send("orders", b"lost", idempotency_key="a"))
    await cluster.until(lambda: ends_at(cluster, first) == 2, what="the leader has it alone")
    assert knows(cluster, first, b"a") == 1
    await gone.abandon()
    with pytest.raises(ClosedError):
        await lost

    await cluster.kill(first)
    cluster.mend()
    await cluster.until(lambda: cluster.leader("orders") in others, what="another leads")
    async with Producer(cluster.bootstrap) as producer:
        sent = await producer.send("orders", b"sent", idempotency_key="a")
        again = await producer.send("orders", b"0", idempotency_key="before")
    assert not sent.replayed
    assert (sent.offset, again.offset, again.replayed) == (1, before.offset, True)

    await cluster.start(first)
    await cluster.until(lambda: knows(cluster, first, b"a") == 1, what="it follows")
    await cluster.until(lambda: first in in_sync(cluster), what="it is in sync")
    async with Admin(cluster.bootstrap) as admin:
        await admin.elect_leaders()
    await cluster.until(lambda: cluster.leader("orders") == first, what="it leads again")
    async with Producer(cluster.bootstrap) as producer:
        repeated = await producer.send("orders", b"sent", idempotency_key="a")
        with pytest.raises(IdempotencyConflictError):
            await producer.send("orders", b"lost", idempotency_key="a")
    assert (repeated.offset, repeated.replayed) == (1, True)


@pytest.mark.timeout(120)
async def test_a_replica_made_anew_knows_keys_whose_messages_are_gone(
    cluster: LocalCluster,
) -> None:
    one, other, fresh = cluster.ids
    where = TopicPartition("kept", 0)
    count = 3_000
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        await admin.create_topic("kept", assignments={0: [one, other]})
        sent = await asyncio.gather(
            *(producer.send("kept", b"x", idempotency_key=f"{n}") for n in range(count))
        )
        await admin.delete_records({where: sent[-1].offset})
        last = await producer.send("kept", b"y", idempotency_key="last")

        await admin.alter_reassignments({where: [fresh, one]})
        await cluster.until(lambda: fresh in in_sync(cluster, "kept"), what="it is in sync")
        await admin.elect_leaders()
        await cluster.until(lambda: leads(cluster, fresh), what="the new one leads")
        assert log_start(cluster, fresh) == sent[-1].offset
        for number in (0, 1_234, count - 1):
            again = await producer.send("kept", b"x", idempotency_key=f"{number}")
            assert (again.replayed, again.offset) == (True, sent[number].offset)
        assert (await producer.send("kept", b"y", idempotency_key="last")).offset == last.offset

        await cluster.kill(fresh)
        await cluster.until(lambda: leads(cluster, one), what="the old one leads")
        await cluster.start(fresh)
        await cluster.until(lambda: fresh in in_sync(cluster, "kept"), what="it is in sync")
        await admin.elect_leaders()
        await cluster.until(lambda: leads(cluster, fresh), what="the new one leads again")
        again = await producer.send("kept", b"x", idempotency_key="0")
        assert (again.replayed, again.offset) == (True, 0)


def leads(cluster: LocalCluster, node: int) -> bool:
    partition = cluster.nodes[node].broker.replicas.find("kept", 0)
    return partition is not None and partition.leading


def log_start(cluster: LocalCluster, node: int) -> int:
    return cluster.nodes[node].broker.replicas.get("kept", 0).log_start
