"""Finding by key while leaders die: who leads next has an index too."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from tests.support.soak import count

from waystation import Admin, Producer
from waystation.testing.cluster import LocalCluster

ROUNDS = count(1, 20)
PER_ROUND = 150
USERS = 10


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path) as running:
        async with Admin(running.bootstrap) as admin:
            options = {"index.keys": "true", "segment.bytes": "8192"}
            await admin.create_topic("inbox", 1, replication_factor=3, configs=options)
        yield running


@pytest.mark.timeout(180)
async def test_the_next_leader_finds_what_was_acknowledged(cluster: LocalCluster) -> None:
    sent: dict[str, list[bytes]] = {f"user-{number}": [] for number in range(USERS)}
    async with (
        Producer(cluster.bootstrap, acks="all") as producer,
        Admin(cluster.bootstrap) as admin,
    ):
        finder = admin.finder("inbox")
        for round_ in range(ROUNDS):
            for number in range(PER_ROUND):
                user, value = f"user-{number % USERS}", b"%d.%d" % (round_, number)
                await producer.send("inbox", value, key=user)
                sent[user].append(value)
            victim = cluster.leader("inbox")
            assert victim is not None
            others = [one for one in cluster.nodes if one != victim]
            await cluster.until(
                partial(_are_indexed, cluster, others),
                what="followers have indexed it",
            )
            waiting = asyncio.ensure_future(
                finder.page("late", offset=(round_ + 1) * PER_ROUND + round_, wait_ms=60_000)
            )
            await cluster.kill(victim)
            await producer.send("inbox", b"%d" % round_, key="late")

            assert [one.value for one in (await asyncio.wait_for(waiting, 60)).messages] == [
                b"%d" % round_
            ]
            for user, values in sent.items():
                assert [one.value async for one in finder.find(user)] == values
            await cluster.start(victim)


def _are_indexed(cluster: LocalCluster, numbers: list[int]) -> bool:
    return all(_is_indexed(cluster, one) for one in numbers)


def _is_indexed(cluster: LocalCluster, number: int) -> bool:
    """Whether a follower has files for all segments but the last, and nothing is left to do."""
    broker = cluster.nodes[number].broker
    partition = broker.replicas.find("inbox", 0)
    if partition is None or partition.log.log_end < PER_ROUND:
        return False
    log = partition.log
    files = {path.name for path in log.path.glob("*.keyindex")}
    return len(log.segments) > 1 and len(files) == len(log.segments) - 1
