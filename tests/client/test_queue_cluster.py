"""A queue in a cluster: leaders and coordinators die and move, and its consumers go on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.queue_work import Ledger, drain, work
from tests.support.soak import count

from waystation import Admin, NotHeldError, Queue, QueueMessage
from waystation.client.queue_errors import SettlementUnknownError
from waystation.testing.cluster import LocalCluster

PARTITIONS = 3
LOCK_MS = 1_500
ROUNDS = count(1, 20)
OPTIONS = {
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.share.heartbeat.interval.ms": "200",
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path, options=OPTIONS) as running:
        async with Admin(running.bootstrap) as admin:
            await admin.create_queue(
                "orders", PARTITIONS, replication_factor=3, lock_ms=LOCK_MS, max_deliveries=1_000
            )
        yield running


async def send(cluster: LocalCluster, numbers: range) -> None:
    async with Queue("orders", cluster.bootstrap) as queue:
        await asyncio.gather(*(queue.send(str(one), key=str(one)) for one in numbers))


@pytest.mark.timeout(180)
async def test_leaders_die_and_nothing_is_lost_or_comes_back(cluster: LocalCluster) -> None:
    ledger = Ledger(200 * (ROUNDS + 1))
    workers = [
        asyncio.create_task(work("orders", cluster.bootstrap, ledger, prefetch=one))
        for one in (0, 20)
    ]
    await send(cluster, range(200))
    for round_ in range(1, ROUNDS + 1):
        await cluster.until(lambda: len(ledger.settled) > 50, what="messages are settled")
        victim = cluster.leader("orders", round_ % PARTITIONS)
        assert victim is not None
        await cluster.kill(victim)
        await send(cluster, range(200 * round_, 200 * (round_ + 1)))
        await cluster.start(victim)

    async with asyncio.timeout(120):
        await asyncio.gather(*workers)
        await drain("orders", cluster.bootstrap, ledger, LOCK_MS + 500)


async def test_messages_in_the_place_of_lost_ones_are_delivered(cluster: LocalCluster) -> None:
    """After an election that loses settled messages, their offsets are others'."""
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_queue("lossy", 1, replication_factor=2, lock_ms=LOCK_MS)
        await admin.alter_configs("lossy", set={"unclean.leader.election.enable": "true"})
    first, second = cluster.image.topic("lossy").partitions[0].replicas
    await settle(cluster, range(10))
    await cluster.kill(second)
    await cluster.until(lambda: in_sync(cluster, "lossy") == (first,))
    await settle(cluster, range(10, 60))
    await cluster.kill(first)
    await cluster.start(second)
    await cluster.until(lambda: cluster.leader("lossy") == second)

    await settle(cluster, range(60, 80))


async def settle(cluster: LocalCluster, numbers: range) -> None:
    """Send messages, and settle exactly these."""
    async with Queue("lossy", cluster.bootstrap, retry_backoff_max_ms=100) as queue:
        for number in numbers:
            await queue.send(str(number))
        got: list[str] = []
        async with asyncio.timeout(30):
            while len(got) < len(numbers):
                messages = await queue.receive(100, 500)
                await queue.ack(messages)
                got += [bytes(one.value or b"").decode() for one in messages]
    assert sorted(got, key=int) == [str(number) for number in numbers]


def in_sync(cluster: LocalCluster, topic: str) -> tuple[int, ...]:
    state = cluster.partition(topic)
    return () if state is None else tuple(state.in_sync)


async def test_what_was_out_when_its_leader_died_is_not_held_any_more(
    cluster: LocalCluster,
) -> None:
    await send(cluster, range(30))
    async with Queue("orders", cluster.bootstrap, retry_backoff_max_ms=100) as queue:
        held: list[QueueMessage] = []
        while len(held) < 30:
            held += await queue.receive(30, 10_000)
        victim = cluster.leader("orders", 0)
        assert victim is not None
        of_victim = [one for one in held if cluster.leader("orders", one.partition) == victim]
        assert of_victim, "nothing of the victim's was received"
        of_others = [one for one in held if one not in of_victim]
        await cluster.kill(victim)

        with pytest.raises((NotHeldError, SettlementUnknownError)):
            await queue.ack(of_victim)
        still_open = {one.value for one in of_victim}
        try:
            await queue.ack(of_others)
        except (NotHeldError, SettlementUnknownError):  # a crowded machine moves more than we did
            still_open |= {one.value for one in of_others}

        again: set[bytes | None] = set()
        async with asyncio.timeout(60):
            while not again >= {one.value for one in of_victim}:
                messages = await queue.receive(30, 1_000)
                again |= {one.value for one in messages}
                with suppress(NotHeldError, SettlementUnknownError):
                    await queue.ack(messages)
        assert again <= still_open
