"""Who claims to be a follower is believed as far as the cluster knows it, and harms nobody."""

from pathlib import Path

import pytest

from waystation.client.admin import Admin
from waystation.client.bootstrap import Address
from waystation.client.connection import Connection
from waystation.client.producer import Producer
from waystation.client.transport import connect_tcp
from waystation.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from waystation.model.error_codes import ErrorCode
from waystation.testing.cluster import LocalCluster

TOPIC = "orders"
HUGE = (1 << 63) - 1


def fetch(cluster: LocalCluster, node: int, life: int, **claims: int) -> FetchRequest:
    wanted = FetchPartition(partition=claims.pop("partition", 0), partition_max_bytes=1 << 20)
    for name, value in claims.items():
        setattr(wanted, name, value)
    topic = FetchTopic(topic="", topic_id=cluster.image.topics[TOPIC].id, partitions=[wanted])
    return FetchRequest(
        replica_state=ReplicaState(replica_id=node, replica_epoch=life),
        max_wait_ms=10,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=0,
        topics=[topic],
        forgotten_topics_data=[],
        rack_id="",
    )


async def test_false_followers_are_refused_and_harm_nobody(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, 2) as cluster:
        await cluster.until(lambda: len(cluster.image.brokers) == 2)
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, assignments={0: [1, 2]})
        async with Producer(cluster.bootstrap, acks="all") as producer:
            await producer.send(TOPIC, "one")
            address = Address(*cluster.nodes[1].address)
            connection = await Connection.open(address, connect_tcp, "an impostor", 5)

            async def told(request: FetchRequest) -> FetchResponse:
                return await connection.ask(request, FetchResponse, 10, 17)

            life = cluster.image.brokers[2].epoch  # type: ignore[index]
            for node, claimed in ((2, life - 1), (2, -1), (7, HUGE), (HUGE >> 33, 0)):
                refused = await told(fetch(cluster, node, claimed))
                assert refused.error_code == ErrorCode.STALE_BROKER_EPOCH
            for claims, error in (
                ({"fetch_offset": -5}, ErrorCode.OFFSET_OUT_OF_RANGE),
                ({"fetch_offset": HUGE}, ErrorCode.OFFSET_OUT_OF_RANGE),
                ({"current_leader_epoch": 1 << 30}, ErrorCode.UNKNOWN_LEADER_EPOCH),
                ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ({"flushed_end": HUGE}, ErrorCode.NONE),
                ({"partition_max_bytes": -1 << 31}, ErrorCode.NONE),
            ):
                answer = await told(fetch(cluster, 2, life, **claims))
                codes = [one.error_code for each in answer.responses for one in each.partitions]
                assert codes in ([], [error]), f"{claims} was answered with {codes}"
            connection.close()
            # Whoever really is broker 2 begins anew, and goes on.
            assert (await producer.send(TOPIC, "two")).offset == 1


@pytest.mark.parametrize("version", [4, 12, 14])
async def test_an_old_follower_says_nothing_of_its_life(tmp_path: Path, version: int) -> None:
    async with LocalCluster(tmp_path, 1) as cluster:
        request = FetchRequest(
            replica_id=1, max_wait_ms=0, min_bytes=1, topics=[], forgotten_topics_data=[]
        )
        address = Address(*cluster.nodes[1].address)
        connection = await Connection.open(address, connect_tcp, "an impostor", 5)
        answer = await connection.ask(request, FetchResponse, 10, version)
        connection.close()

        assert answer.responses == []
        assert answer.error_code == (ErrorCode.STALE_BROKER_EPOCH if version >= 7 else 0)
