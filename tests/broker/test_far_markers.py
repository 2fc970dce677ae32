"""Markers for partitions that others lead: together, told one by one, tried once each."""

import asyncio
from typing import Any, cast

import pytest

from waystation.broker.far_markers import FarMarkers
from waystation.broker.gathering import Gathering
from waystation.broker.peers import Peers
from waystation.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from waystation.model.errors import ErrorCode, PeerUnreachableError, WaystationError
from waystation.model.ids import NodeId, ProducerEpoch, ProducerId, TopicPartition
from waystation.records.control import Marker

THERE = NodeId(2)
ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 3)


def marker(producer: int, *, bumped: bool = False) -> Marker:
    return Marker(ProducerId(producer), ProducerEpoch(4), 9, committed=True, bumped=bumped)


class Leader:
    """Another broker; it refuses what ``codes`` says."""

    def __init__(self) -> None:
        self.requests: list[tuple[NodeId, str, WriteTxnMarkersRequest]] = []
        self.codes: dict[TopicPartition, int] = {}
        self.silent_about: set[TopicPartition] = set()
        self.gone = False
        self.told: list[tuple[TopicPartition, WaystationError | None]] = []
        self.far = FarMarkers(cast(Peers, self))

    async def ask(self, node: NodeId, request: Any, _expect: Any, *, purpose: str) -> Any:
        self.requests.append((node, purpose, request))
        if self.gone:
            raise PeerUnreachableError(node, "it is gone")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=one.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=number,
                                    error_code=self.codes.get(
                                        TopicPartition(topic.name, number), 0
                                    ),
                                )
                                for number in topic.partition_indexes
                                if TopicPartition(topic.name, number) not in self.silent_about
                            ],
                        )
                        for topic in one.topics
                    ],
                )
                for one in request.markers
            ]
        )

    def write(self, name: TopicPartition, wanted: Marker, *, again: bool = False) -> None:
        told = lambda error: self.told.append((name, error))  # noqa: E731 - as it is handed in
        self.far.write(THERE, name, wanted, told, again=again)

    async def outcomes(self, count: int) -> dict[TopicPartition, WaystationError | None]:
        async with asyncio.timeout(5):
            while len(self.told) < count:
                await asyncio.sleep(0.001)
        return dict(self.told)


@pytest.fixture
async def leader() -> Leader:
    return Leader()


async def test_the_markers_of_one_moment_share_a_request(leader: Leader) -> None:
    leader.write(ORDERS, marker(1))
    leader.write(BILLS, marker(1))
    leader.write(ORDERS, marker(2, bumped=True))
    await leader.outcomes(3)

    ((node, purpose, request),) = leader.requests
    assert (node, purpose) == (THERE, "markers")
    one, other = request.markers
    assert (one.producer_id, one.producer_epoch, one.coordinator_epoch) == (1, 4, 9)
    assert [(topic.name, topic.partition_indexes) for topic in one.topics] == [
        ("orders", [0]),
        ("bills", [3]),
    ]
    assert (one.transaction_version, other.transaction_version) == (0, 2)
    assert one.transaction_result
    assert [topic.name for topic in other.topics] == ["orders"]


async def test_each_hears_of_its_own(leader: Leader) -> None:
    leader.codes[ORDERS] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.write(ORDERS, marker(1))
    leader.write(BILLS, marker(1))

    outcomes = await leader.outcomes(2)
    assert outcomes[BILLS] is None
    error = outcomes[ORDERS]
    assert error is not None
    assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_no_answer_is_no_marker(leader: Leader) -> None:
    leader.silent_about.add(BILLS)
    leader.write(BILLS, marker(1))
    assert isinstance((await leader.outcomes(1))[BILLS], PeerUnreachableError)

    leader.gone = True
    leader.write(ORDERS, marker(1))
    assert isinstance((await leader.outcomes(2))[ORDERS], PeerUnreachableError)


async def test_what_failed_before_holds_up_nothing_new(leader: Leader) -> None:
    leader.write(ORDERS, marker(1), again=True)
    leader.write(BILLS, marker(1))
    await leader.outcomes(2)

    assert {purpose for _, purpose, _ in leader.requests} == {"markers", "markers-again"}


async def test_what_comes_while_much_is_under_way_goes_together() -> None:
    sent: list[list[int]] = []
    release = asyncio.Event()

    async def send(_: str, items: list[int]) -> None:
        sent.append(items)
        await release.wait()

    gathering: Gathering[str, int] = Gathering(send, "test")
    for number in range(10):
        gathering.add("there", number)
        await asyncio.sleep(0.001)
    assert sent == [[0], [1], [2], [3]]

    release.set()
    await asyncio.sleep(0.01)
    assert sent[4:] == [[4, 5, 6, 7, 8, 9]]
    await gathering.aclose()
