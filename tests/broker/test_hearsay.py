"""A leader that the store does not reach any more: it asks others, and keeps nobody waiting."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest

from tests.apis.asking import produce_request
from tests.apis.kit import batch_of
from waystation.client.admin import Admin
from waystation.client.bootstrap import Address
from waystation.client.connection import Connection
from waystation.client.producer import Producer
from waystation.client.transport import connect_tcp
from waystation.messages.produce import PartitionProduceResponse, ProduceResponse
from waystation.model.error_codes import ErrorCode
from waystation.testing.cluster import LocalCluster

TOPIC = "orders"
# The lease is a second: everything is known soon after that, and no client waits for its minute.
SOON_S = 20.0
REFUSED = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path, 3) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            configs = {"min.insync.replicas": "2"}
            await admin.create_topic(TOPIC, replication_factor=3, configs=configs)
        await cluster.until(lambda: in_sync(cluster) == 3)
        held = [one.broker.replicas for one in cluster.nodes.values()]
        await cluster.until(lambda: all(some.find(TOPIC, 0) for some in held))
        yield cluster


def in_sync(cluster: LocalCluster) -> int:
    state = cluster.partition(TOPIC)
    return 0 if state is None else len(state.in_sync)


def leader_of(cluster: LocalCluster) -> int:
    leader = cluster.leader(TOPIC)
    assert leader is not None
    return leader


def others(cluster: LocalCluster, than: int) -> list[int]:
    return [one for one in cluster.ids if one != than]


def isolate(cluster: LocalCluster, number: int) -> None:
    cluster.cut_off_from_store(number)
    for other in others(cluster, number):
        cluster.cut(number, other)
        cluster.cut(other, number)


class Writer:
    """Writes to one broker, whether it leads or not."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.slowest_s = 0.0

    async def write(self, acks: int = -1) -> PartitionProduceResponse:
        answer = await self.ask(acks)
        return answer.responses[0].partition_responses[0]

    async def ask(self, acks: int = -1) -> ProduceResponse:
        began = monotonic()
        request = produce_request(TOPIC, batch_of(b"paid"), acks=acks, timeout_ms=60_000)
        answer = await self._connection.ask(request, ProduceResponse, 60, version=12)
        self.slowest_s = max(self.slowest_s, monotonic() - began)
        return answer

    async def until(self, error: ErrorCode) -> ProduceResponse:
        """Write until that is the answer."""
        async with asyncio.timeout(30):
            while True:
                answer = await self.ask()
                if answer.responses[0].partition_responses[0].error_code == error:
                    return answer
                await asyncio.sleep(0.02)


@asynccontextmanager
async def writer_to(cluster: LocalCluster, number: int) -> AsyncIterator[Writer]:
    host, port = str(cluster.nodes[number].address).rsplit(":", 1)
    connection = await Connection.open(Address(host, int(port)), connect_tcp, "test", 5)
    try:
        yield Writer(connection)
    finally:
        connection.close()


async def test_who_is_cut_off_from_the_store_alone_learns_who_leads(
    cluster: LocalCluster,
) -> None:
    old = leader_of(cluster)
    async with writer_to(cluster, old) as writer:
        assert (await writer.write()).error_code == 0
        cluster.cut_off_from_store(old)
        answer = await writer.until(REFUSED)
        assert writer.slowest_s < SOON_S

        new = leader_of(cluster)
        hint = answer.responses[0].partition_responses[0].current_leader
        assert new != old
        assert hint is not None
        assert (hint.leader_id, hint.leader_epoch) == (new, cluster.partition(TOPIC).leader_epoch)  # type: ignore[union-attr]
        assert [one.node_id for one in answer.node_endpoints] == [new]
        assert (await writer.write(acks=1)).error_code == REFUSED

    async with Admin(str(cluster.nodes[old].address)) as admin:
        told = (await admin.describe_topic(TOPIC)).partitions[0]
        assert told.leader == new, "clients that ask the one which is cut off go round in circles"

    cluster.reconnect_to_store(old)
    await cluster.until(lambda: in_sync(cluster) == 3)
    async with Producer(cluster.bootstrap, acks="all") as producer:
        await producer.send(TOPIC, "paid")
    ends = {one.broker.replicas.get(TOPIC, 0).log_end for one in cluster.nodes.values()}
    assert len(ends) == 1


async def test_who_is_cut_off_from_everybody_lets_nobody_wait(cluster: LocalCluster) -> None:
    old = leader_of(cluster)
    held = cluster.nodes[old].broker.replicas.get(TOPIC, 0)
    async with writer_to(cluster, old) as writer:
        isolate(cluster, old)
        waiting = await writer.write()

        assert waiting.error_code == REFUSED
        assert "neither the coordination store nor" in (waiting.error_message or "")
        assert writer.slowest_s < SOON_S
        began = monotonic()
        assert (await writer.write()).error_code == REFUSED
        assert monotonic() - began < SOON_S / 4
        assert held.leading
        assert (await writer.write(acks=1)).error_code == 0

        cluster.mend()
        await cluster.until(lambda: in_sync(cluster) == 3)
        await cluster.until(lambda: not held.in_doubt)


async def test_where_the_store_is_away_for_everybody_leaders_go_on(
    cluster: LocalCluster,
) -> None:
    leader = leader_of(cluster)
    for number in cluster.ids:
        cluster.cut_off_from_store(number)
    async with writer_to(cluster, leader) as writer:
        async with asyncio.timeout(40):
            until = monotonic() + 3
            while monotonic() < until:
                assert (await writer.write()).error_code == 0
                await asyncio.sleep(0.05)
    assert cluster.nodes[leader].broker._membership.overdue


async def test_one_who_returns_ends_the_doubt(cluster: LocalCluster) -> None:
    leader = leader_of(cluster)
    lost = others(cluster, leader)[0]
    for number in cluster.ids:
        cluster.cut_off_from_store(number)
    cluster.cut(lost, leader)
    async with writer_to(cluster, leader) as writer:
        assert (await writer.write()).error_code == REFUSED, "the set is written, and not complete"
        cluster._cuts.clear()
        await writer.until(ErrorCode.NONE)
