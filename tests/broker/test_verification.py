"""Coordinators elsewhere are asked before a transaction begins, and again if it may have ended."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from waystation.broker.admission import Verdict
from waystation.broker.peers import Peers
from waystation.broker.replicas import Replicas
from waystation.broker.verification import Verification
from waystation.groups.inquiries import Inquiries
from waystation.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from waystation.model.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    ErrorCode,
    PeerUnreachableError,
    ProducerFencedError,
    TransactionAbortableError,
)
from waystation.model.ids import LeaderEpoch, NodeId, ProducerEpoch, ProducerId, TopicPartition
from waystation.partition.leadership import Leadership
from waystation.runtime.clock import SystemClock
from waystation.runtime.timers import Timers
from waystation.transactions.commands import Add

HERE, THERE = NodeId(1), NodeId(2)
PRODUCER = ProducerId(7)
ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 3)


class Asked:
    """A request on its way, to be answered by the test."""

    def __init__(self, node: NodeId, request: AddPartitionsToTxnRequest, purpose: str) -> None:
        self.node, self.request, self.purpose = node, request, purpose
        self.answer: asyncio.Future[AddPartitionsToTxnResponse] = asyncio.Future()

    def say(self, codes: Mapping[TopicPartition, int] | None = None) -> None:
        """Answer as a coordinator does; without a code a partition is part of it."""
        self.answer.set_result(
            AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnResult(
                        transactional_id=one.transactional_id,
                        topic_results=[
                            AddPartitionsToTxnTopicResult(
                                name=topic.name,
                                results_by_partition=[
                                    AddPartitionsToTxnPartitionResult(
                                        partition_index=number,
                                        partition_error_code=(codes or {}).get(
                                            TopicPartition(topic.name, number), 0
                                        ),
                                    )
                                    for number in topic.partitions
                                ],
                            )
                            for topic in one.topics
                        ],
                    )
                    for one in self.request.transactions
                ]
            )
        )


class Held:
    """A partition as far as who leads it."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.leading = True
        self.leadership = Leadership(HERE, LeaderEpoch(3), (HERE,))


class World:
    """A broker that leads two partitions, and coordinators that the test speaks for."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.inquiries = Inquiries()
        self.held = {name: Held(name) for name in (ORDERS, BILLS)}
        self.verdicts: list[Verdict] = []
        self.verification = Verification(
            cast(Peers, self),
            lambda _: THERE,
            cast(Replicas, self),
            self.inquiries,
            Timers(SystemClock()),
        )

    def find(self, topic: str, partition: int) -> Held | None:
        return self.held.get(TopicPartition(topic, partition))

    async def ask(self, node: NodeId, request: Any, _expect: Any, *, purpose: str) -> Any:
        asked = Asked(node, request, purpose)
        self.asked.append(asked)
        return await asked.answer

    def begin(self, *names: TopicPartition, who: str = "payments", verify: bool = True) -> None:
        add = Add(who, PRODUCER, ProducerEpoch(0), frozenset(names), verify_only=verify)
        self.verification.ask(add, self.verdicts.append)

    async def nth(self, number: int) -> Asked:
        async with asyncio.timeout(5):
            while len(self.asked) < number:
                await asyncio.sleep(0.001)
        return self.asked[number - 1]

    async def verdict(self) -> Verdict:
        async with asyncio.timeout(5):
            while not self.verdicts:
                await asyncio.sleep(0.001)
        return self.verdicts.pop(0)


@pytest.fixture
async def world() -> World:
    return World()


async def test_what_the_coordinator_says_is_heard(world: World) -> None:
    world.begin(ORDERS, BILLS)
    asked = await world.nth(1)
    (one,) = asked.request.transactions
    assert (asked.node, one.transactional_id, one.verify_only) == (THERE, "payments", True)
    assert [(topic.name, topic.partitions) for topic in one.topics] == [
        ("bills", [3]),
        ("orders", [0]),
    ]
    asked.say({BILLS: ErrorCode.TRANSACTION_ABORTABLE})

    verdict = await world.verdict()
    assert verdict[ORDERS] is None
    assert isinstance(verdict[BILLS], TransactionAbortableError)


async def test_questions_of_one_moment_share_a_request(world: World) -> None:
    for name in ("a", "b", "c"):
        world.begin(ORDERS, who=name, verify=False)
    asked = await world.nth(1)
    assert [one.transactional_id for one in asked.request.transactions] == ["a", "b", "c"]
    asked.say()
    for _ in range(3):
        assert await world.verdict() == {ORDERS: None}


async def test_a_transaction_that_ended_meanwhile_is_asked_about_again(world: World) -> None:
    world.begin(ORDERS)
    asked = await world.nth(1)
    world.inquiries.ended(PRODUCER)
    asked.say()
    again = await world.nth(2)
    assert not world.verdicts
    again.say({ORDERS: ErrorCode.PRODUCER_FENCED})

    assert isinstance((await world.verdict())[ORDERS], ProducerFencedError)


async def test_another_producers_end_does_not_matter(world: World) -> None:
    world.begin(ORDERS)
    asked = await world.nth(1)
    world.inquiries.ended(ProducerId(8))
    asked.say()

    assert await world.verdict() == {ORDERS: None}


async def test_another_leader_may_have_ended_it_too(world: World) -> None:
    """Led, lost and led again: who led in between may have written the marker."""
    world.begin(ORDERS, BILLS)
    asked = await world.nth(1)
    world.held[BILLS].leadership = Leadership(HERE, LeaderEpoch(5), (HERE,))
    asked.say({ORDERS: ErrorCode.TRANSACTION_ABORTABLE})
    again = await world.nth(2)
    again.say()

    assert await world.verdict() == {ORDERS: None, BILLS: None}


async def test_a_refusal_needs_no_second_question(world: World) -> None:
    world.begin(ORDERS)
    asked = await world.nth(1)
    world.inquiries.ended(PRODUCER)
    asked.say({ORDERS: ErrorCode.PRODUCER_FENCED})

    assert isinstance((await world.verdict())[ORDERS], ProducerFencedError)


async def test_a_coordinator_that_still_ends_the_last_one_is_asked_again(world: World) -> None:
    world.begin(ORDERS)
    for number in range(1, 4):
        asked = await world.nth(number)
        asked.say({ORDERS: ErrorCode.CONCURRENT_TRANSACTIONS})
    (await world.nth(4)).say()

    assert await world.verdict() == {ORDERS: None}


async def test_it_is_not_asked_for_ever(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waystation.broker.verification.WAIT_MS", 50)
    world.begin(ORDERS)
    number = 1
    while not world.verdicts:
        asked = await world.nth(number)
        asked.say({ORDERS: ErrorCode.CONCURRENT_TRANSACTIONS})
        await asyncio.sleep(0.02)
        number += 1

    assert isinstance((await world.verdict())[ORDERS], ConcurrentTransactionsError)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED],
)
async def test_one_that_has_not_heard_of_a_topic_yet_knows_nothing(
    world: World, code: ErrorCode
) -> None:
    world.begin(ORDERS)
    (await world.nth(1)).say({ORDERS: code})

    assert isinstance((await world.verdict())[ORDERS], CoordinatorNotAvailableError)


async def test_one_that_cannot_be_reached_knows_nothing(world: World) -> None:
    world.begin(ORDERS, BILLS)
    (await world.nth(1)).answer.set_exception(PeerUnreachableError(THERE, "it is gone"))

    verdict = await world.verdict()
    assert {*verdict} == {ORDERS, BILLS}
    assert all(isinstance(one, CoordinatorNotAvailableError) for one in verdict.values())


async def test_an_answer_about_somebody_else_is_none(world: World) -> None:
    world.begin(ORDERS)
    asked = await world.nth(1)
    asked.request.transactions[0].transactional_id = "somebody"
    asked.say()

    assert isinstance((await world.verdict())[ORDERS], CoordinatorNotAvailableError)
