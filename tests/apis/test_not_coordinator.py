"""Whoever does not coordinate a group or a transactional id says so, in every version."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.apis.clustering import ThreadedCluster
from tests.apis.kit import versions
from waystation.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from waystation.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from waystation.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from waystation.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from waystation.messages.delete_groups import DeleteGroupsRequest
from waystation.messages.describe_groups import DescribeGroupsRequest
from waystation.messages.describe_transactions import DescribeTransactionsRequest
from waystation.messages.end_txn import EndTxnRequest
from waystation.messages.find_coordinator import FindCoordinatorRequest
from waystation.messages.heartbeat import HeartbeatRequest
from waystation.messages.init_producer_id import InitProducerIdRequest
from waystation.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from waystation.messages.leave_group import LeaveGroupRequest, MemberIdentity
from waystation.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from waystation.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from waystation.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from waystation.messages.prepare_txn import PrepareTxnRequest
from waystation.messages.sync_group import SyncGroupRequest
from waystation.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from waystation.messages.txn_outcome import TxnOutcomeRequest
from waystation.model.errors import ErrorCode
from waystation.wire.message import Message, Struct

GROUP, TRANSACTION = 0, 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedCluster]:
    few = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with ThreadedCluster(tmp_path_factory.mktemp("cluster"), options=few) as running:
        running.create("orders", [1, 2])
        yield running


def stranger(cluster: ThreadedCluster, kind: int) -> int:
    """A broker that coordinates nothing of that kind."""
    request = FindCoordinatorRequest(key="name", key_type=kind, coordinator_keys=["name"])
    found = -1

    def known() -> bool:
        nonlocal found
        (told,) = asked.ask(request, 4).coordinators
        found = told.node_id
        return bool(told.error_code == 0)

    with cluster.client() as asked:
        while not known():
            pass
    cluster.settle()
    return next(number for number in cluster.local.nodes if number != found)


def of_groups(topic_id: UUID) -> list[Message]:
    commit = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    in_txn = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    forgotten = OffsetDeleteRequestPartition(partition_index=0)
    return [
        JoinGroupRequest(
            group_id="name",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        SyncGroupRequest(
            group_id="name",
            generation_id=1,
            member_id="m",
            protocol_type="consumer",
            protocol_name="range",
        ),
        HeartbeatRequest(group_id="name", generation_id=1, member_id="m"),
        LeaveGroupRequest(group_id="name", member_id="m", members=[MemberIdentity(member_id="m")]),
        OffsetCommitRequest(
            group_id="name",
            topics=[
                OffsetCommitRequestTopic(name="orders", topic_id=topic_id, partitions=[commit])
            ],
        ),
        OffsetFetchRequest(
            group_id="name",
            topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0])],
            groups=[OffsetFetchRequestGroup(group_id="name", topics=None)],
        ),
        DescribeGroupsRequest(groups=["name"]),
        DeleteGroupsRequest(groups_names=["name"]),
        OffsetDeleteRequest(
            group_id="name",
            topics=[OffsetDeleteRequestTopic(name="orders", partitions=[forgotten])],
        ),
        ConsumerGroupHeartbeatRequest(
            group_id="name",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        ),
        ConsumerGroupDescribeRequest(group_ids=["name"]),
        TxnOffsetCommitRequest(
            transactional_id="name",
            group_id="name",
            producer_id=1,
            topics=[TxnOffsetCommitRequestTopic(name="orders", partitions=[in_txn])],
        ),
    ]


def of_transactions() -> list[Message]:
    topics = [AddPartitionsToTxnTopic(name="orders", partitions=[0])]
    return [
        InitProducerIdRequest(transactional_id="name", transaction_timeout_ms=10_000),
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="name",
            v3_and_below_producer_id=1,
            v3_and_below_topics=topics,
            transactions=[
                AddPartitionsToTxnTransaction(transactional_id="name", producer_id=1, topics=topics)
            ],
        ),
        AddOffsetsToTxnRequest(transactional_id="name", producer_id=1, group_id="name"),
        EndTxnRequest(transactional_id="name", producer_id=1, committed=True),
        DescribeTransactionsRequest(transactional_ids=["name"]),
        PrepareTxnRequest(transactional_id="name", producer_id=1),
        TxnOutcomeRequest(transactional_id="name", producer_id=1),
    ]


def codes_in(answer: Struct) -> Iterator[int]:
    """Every error code, however deep."""
    for name in answer.__fields__:
        value: Any = getattr(answer, name)
        if name.endswith("error_code"):
            yield value
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Struct):
                yield from codes_in(one)


def expect_refusals(cluster: ThreadedCluster, at: int, requests: list[Message]) -> None:
    with cluster.client(at) as client:
        for request in requests:
            assert request.api is not None
            for version in versions(request.api):
                told = client.ask(request, version)
                found = {*codes_in(told)} - {0}
                assert found == {ErrorCode.NOT_COORDINATOR}, f"{request} v{version}: {told}"


def test_groups_are_found_elsewhere(cluster: ThreadedCluster) -> None:
    at = stranger(cluster, GROUP)
    with cluster.client(at) as client:
        topic_id = client.topic_id("orders")

    expect_refusals(cluster, at, of_groups(topic_id))


def test_transactions_are_found_elsewhere(cluster: ThreadedCluster) -> None:
    expect_refusals(cluster, stranger(cluster, TRANSACTION), of_transactions())
