"""The parts of a queue's client that need no broker: leases, ranges, receipts, what came."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.client.queue import Queue
from waystation.client.queue_errors import NotHeldError, SettlementUnknownError
from waystation.client.queue_halves import culprits
from waystation.client.queue_lease import Hold, Lease
from waystation.client.queue_receipts import Receipt
from waystation.client.queue_records import acquired_in
from waystation.client.queue_sending import priority_header
from waystation.client.queue_session import QueueSession
from waystation.client.queue_settings import queue_settings
from waystation.client.queue_settling import Batch, Settling, ranges_of
from waystation.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from waystation.model.errors import (
    ErrorCode,
    InvalidRequestError,
    InvalidSettingsError,
    RequestTimedOutError,
)
from waystation.model.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder
from waystation.records.header import stamp
from waystation.sharing.states import REJECT

WHERE = TopicPartition("orders", 0)


def a_lease(*offsets: int, ends_at: float = 30.0) -> Lease:
    unsettled = {Offset(one) for one in offsets}
    return Lease(Hold(None, WHERE), ends_at, unsettled)  # type: ignore[arg-type]


# --- leases -------------------------------------------------------------------------------------


def test_a_message_is_settled_once() -> None:
    lease = a_lease(5)

    assert lease.settle(Offset(5), 0.0) is None
    assert lease.settle(Offset(5), 0.0) == "was settled already"


def test_what_is_over_cannot_be_settled() -> None:
    lease = a_lease(5, 6, ends_at=30.0)
    lease.extend(Offset(6), 60.0)

    assert "over 1.5 s ago" in (lease.settle(Offset(5), 31.5) or "")
    assert lease.settle(Offset(6), 31.5) is None


def test_what_is_lost_says_why() -> None:
    lease = a_lease(5)
    lease.hold.lost = "the connection to node 1 was lost"

    assert "connection to node 1" in (lease.settle(Offset(5), 0.0) or "")


def test_of_two_deliveries_the_later_one_counts() -> None:
    """A lock ended here later than at the leader, who gave the message to the same consumer."""
    hold = Hold(None, WHERE)  # type: ignore[arg-type]
    first, second = (Lease(hold, 30.0, {Offset(5)}) for _ in range(2))
    for lease in (first, second):
        hold.took(lease, {Offset(5)})

    assert "delivered again" in (first.settle(Offset(5), 0.0) or "")
    assert second.why_not(Offset(5), 0.0) is None


def test_what_was_settled_meanwhile_is_not_handed_out_again() -> None:
    """The first delivery was acknowledged, and then the second one came before the answer."""
    hold = Hold(None, WHERE)  # type: ignore[arg-type]
    first, second = (Lease(hold, 30.0, {Offset(5)}) for _ in range(2))
    hold.took(first, {Offset(5)})
    assert first.settle(Offset(5), 0.0) is None
    hold.took(second, {Offset(5)})

    hold.settled(Offset(5))

    assert second.why_not(Offset(5), 0.0) == "was settled already"


def test_what_was_given_back_and_comes_again_is_held() -> None:
    hold = Hold(None, WHERE)  # type: ignore[arg-type]
    first, second = (Lease(hold, 30.0, {Offset(5)}) for _ in range(2))
    hold.took(first, {Offset(5)})
    assert first.settle(Offset(5), 0.0) is None
    hold.took(second, {Offset(5)})

    hold.released(Offset(5))

    assert second.why_not(Offset(5), 0.0) is None


# --- acknowledgements ---------------------------------------------------------------------------


@given(st.dictionaries(st.integers(0, 60), st.integers(0, 4)))
def test_ranges_say_exactly_what_was_meant(kinds: dict[int, int]) -> None:
    """In rising order, without overlap, and none that could be one with its neighbour."""
    told = ranges_of(kinds)

    said = {
        offset: one.acknowledge_types[0]
        for one in told
        for offset in range(one.first_offset, one.last_offset + 1)
    }
    assert said == kinds
    for before, after in pairwise(told):
        assert before.last_offset < after.first_offset
        touches = before.last_offset + 1 == after.first_offset
        assert not touches or before.acknowledge_types != after.acknowledge_types


@given(
    st.dictionaries(st.integers(0, 60), st.integers(0, 4)),
    st.dictionaries(st.integers(0, 60), st.sampled_from(["late", "large"])),
)
def test_reasons_go_with_what_is_rejected_and_change_nothing_else(
    kinds: dict[int, int], reasons: dict[int, str]
) -> None:
    told = ranges_of(kinds, reasons)

    said = {
        offset: (one.acknowledge_types[0], one.reason)
        for one in told
        for offset in range(one.first_offset, one.last_offset + 1)
    }
    assert said == {
        at: (kind, reasons.get(at, "") if kind == REJECT else "") for at, kind in kinds.items()
    }
    for before, after in pairwise(told):
        assert before.last_offset < after.first_offset


async def test_a_call_is_answered_when_every_leader_has() -> None:
    settling, batches = Settling(asyncio.get_running_loop()), (Batch(), Batch())
    for number, batch in enumerate(batches):
        settling.add(TopicPartition("orders", number), 7)
        batch.add(TopicPartition("orders", number), 7, 1)
        batch.settlings[settling] = None
    settling.sent_with(2)

    batches[0].answered({})
    assert not settling.done.done()
    batches[1].refused("is not held any more")

    with pytest.raises(NotHeldError, match="7 of orders-1 is not held"):
        await settling.done


async def test_an_answer_that_never_comes_is_not_taken_for_one() -> None:
    settling, batch = Settling(asyncio.get_running_loop()), Batch()
    settling.add(WHERE, 7)
    batch.settlings[settling] = None
    settling.sent_with(1)

    batch.unknown(RequestTimedOutError("node 1 did not answer"))

    with pytest.raises(SettlementUnknownError, match="delivered again"):
        await settling.done


@given(st.integers(1, 40), st.sets(st.integers(0, 39)))
def test_halves_find_those_at_fault_and_settle_the_others(number: int, bad: set[int]) -> None:
    """Whatever part is told, a leader refuses it if one of it is at fault."""
    bad = {one for one in bad if one < number}
    settled: set[int] = set()

    async def tell(part: dict[int, int]) -> str | None:
        assert not settled & part.keys(), "settled twice"
        if bad & part.keys():
            return "its lock is over"
        settled.update(part)
        return None

    async def told() -> dict[int, str]:
        everything = dict.fromkeys(range(number), 1)
        why = await tell(everything)
        return {} if why is None else await culprits(everything, why, tell, lambda: False)

    found = asyncio.run(told())

    assert found.keys() == bad
    assert settled == set(range(number)) - bad


@pytest.mark.parametrize("answered", [True, False])
async def test_only_a_yes_is_taken_for_one(answered: bool) -> None:
    """Whatever the session has forgotten by the time a leader refuses, or says nothing."""
    around = SimpleNamespace(
        router=SimpleNamespace(
            strayed=lambda *_: False, backoff=SimpleNamespace(delay_s=lambda _: 0.0)
        )
    )
    session, topic_id = QueueSession(NodeId(1), around), TopicId(uuid4())
    settling, batch = Settling(asyncio.get_running_loop()), Batch()
    settling.add(WHERE, 5)
    batch.add(WHERE, 5, 1)
    batch.settlings[settling] = None
    settling.sent_with(1)
    response = ShareFetchResponse()
    if answered:
        refusal = PartitionData(acknowledge_error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        topic = ShareFetchableTopicResponse(topic_id=topic_id, partitions=[refusal])
        response.responses = [topic]

    await session._take(response, batch, {(topic_id, 0): WHERE}, is_current=False)

    with pytest.raises(NotHeldError, match="could not be settled"):
        await settling.done


# --- what was acquired --------------------------------------------------------------------------


def batch_of(first: int, *values: bytes) -> bytes:
    builder = BatchBuilder()
    for value in values:
        assert builder.append(None, value, timestamp=Millis(0))
    built = bytearray(builder.build())
    stamp(built, 0, Offset(first), LeaderEpoch(0))
    return bytes(built)


def acquired(*ranges: tuple[int, int, int]) -> list[AcquiredRecords]:
    return [
        AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
        for first, last, count in ranges
    ]


def test_only_what_was_acquired_is_handed_out() -> None:
    records = memoryview(batch_of(0, b"a", b"b", b"c") + batch_of(3, b"d", b"e"))

    found = acquired_in(records, acquired((3, 3, 2), (1, 1, 1)), 1 << 20)

    assert [(row[0], row[3], count) for row, count in found.rows] == [(1, b"b", 1), (3, b"d", 2)]
    assert not found.gaps
    assert not found.corrupt


def test_offsets_without_a_message_are_gaps() -> None:
    found = acquired_in(memoryview(batch_of(2, b"c")), acquired((0, 4, 1)), 1 << 20)

    assert [row[0] for row, _ in found.rows] == [2]
    assert found.gaps == [0, 1, 3, 4]


def test_a_damaged_batch_is_given_back_and_told() -> None:
    damaged = bytearray(batch_of(0, b"aaaa"))
    damaged[-1] ^= 0xFF

    found = acquired_in(memoryview(damaged + batch_of(1, b"b")), acquired((0, 1, 1)), 1 << 20)

    assert [row[0] for row, _ in found.rows] == [1]
    assert found.corrupt == [0]
    assert found.damage is not None


# --- words --------------------------------------------------------------------------------------


def test_a_receipt_comes_back_from_its_text() -> None:
    receipt = Receipt(3, Offset(1742), "pS3k-Xq7c_Q5")

    assert Receipt.of(str(receipt)) == receipt


@pytest.mark.parametrize(
    "text", ["", "1-2", "a-1-x", "1-2-", "-1-2-x", f"1-{1 << 63}-x", f"{1 << 31}-1-x", "1-²-x"]
)
def test_what_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="no receipt"):
        Receipt.of(text)


@pytest.mark.parametrize("priority", [-1, 10, 1 << 40, True, 2.5, "9"])
def test_an_absurd_priority_is_refused(priority: object) -> None:
    with pytest.raises(InvalidRequestError, match="0, the lowest, to 9"):
        priority_header(priority)  # type: ignore[arg-type]


def test_wrong_options_are_named() -> None:
    with pytest.raises(InvalidSettingsError, match="prefetch_messages"):
        queue_settings({"prefetch": 5})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(InvalidRequestError, match="no name"):
        Queue("")
