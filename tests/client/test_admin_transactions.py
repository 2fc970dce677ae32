"""What an admin asks of whom about transactions, and what it makes of the answers.

The cluster is scripted, because a transaction that hangs is what no broker of ours brings
about; the same calls meet a real broker in ``tests/cli/test_txn.py``.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from tests.support.scripted_broker import ScriptedBroker

from waystation import Admin, TopicPartition
from waystation.client.transaction_descriptions import PREPARED, TransactionListing
from waystation.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from waystation.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from waystation.messages.describe_transactions import TransactionState as Described
from waystation.messages.end_txn import EndTxnRequest, EndTxnResponse
from waystation.messages.find_coordinator import (
    TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from waystation.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from waystation.messages.txn_outcome import TxnOutcomeRequest, TxnOutcomeResponse
from waystation.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from waystation.model.errors import (
    ErrorCode,
    InvalidRequestError,
    InvalidTxnStateError,
    TransactionalIdNotFoundError,
    TransactionCoordinatorFencedError,
    UnsupportedVersionError,
)
from waystation.model.offsets import Millis
from waystation.runtime.clock import SystemClock
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey

HOUR_MS = 3_600_000
LATE_MS = SystemClock().now() - HOUR_MS
STATES = ("Ongoing", "Prepared", "CompleteCommit", "CompleteAbort")


@dataclass
class Known:
    """What a coordinator knows of a transactional id."""

    producer: int = 7
    epoch: int = 3
    state: str = "Ongoing"
    started_at_ms: int = 1_000
    partitions: tuple[int, ...] = (0,)
    codes: list[int] = field(default_factory=list)


class Cluster(ScriptedBroker):
    """Two brokers: the first leads partition 0, the second partition 1 and all coordinators.

    ``remembered`` are the producers of each partition, ``known`` what coordinators know.
    """

    def __init__(self) -> None:
        super().__init__(leaders=(1, 2))
        self.known: dict[str, Known] = {}
        self.remembered: dict[int, list[ProducerState]] = {0: [], 1: []}
        self.outcome = TxnOutcomeResponse()
        self.marker_code = 0
        self.ended_while_asked = False
        self.handlers |= {
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
            ApiKey.LIST_TRANSACTIONS: self.list_transactions,
            ApiKey.DESCRIBE_TRANSACTIONS: self.describe_transactions,
            ApiKey.DESCRIBE_PRODUCERS: self.describe_producers,
            ApiKey.END_TXN: lambda _: EndTxnResponse(),
            ApiKey.TXN_OUTCOME: lambda _: self.outcome,
            ApiKey.WRITE_TXN_MARKERS: self.write_txn_markers,
        }

    def holds_open(self, partition: int, producer: int, written_at_ms: int = LATE_MS) -> None:
        """Let a partition hold a transaction open."""
        self.remembered[partition].append(
            ProducerState(
                producer_id=producer,
                producer_epoch=5,
                last_timestamp=written_at_ms,
                coordinator_epoch=-1,
                current_txn_start_offset=40,
            )
        )

    def find_coordinator(self, request: Message) -> Message:
        assert isinstance(request, FindCoordinatorRequest)
        assert request.key_type == TRANSACTION
        (key,) = request.coordinator_keys
        found = Coordinator(key=key, node_id=2, host="node-2", port=9092)
        return FindCoordinatorResponse(coordinators=[found])

    def list_transactions(self, request: Message) -> Message:
        assert isinstance(request, ListTransactionsRequest)
        asked_of_coordinator = self.asked[-1][0] == 2
        listed = [
            TransactionState(
                transactional_id=name, producer_id=one.producer, transaction_state=one.state
            )
            for name, one in self.known.items()
            if asked_of_coordinator
            and (not request.state_filters or one.state in request.state_filters)
            and (not request.producer_id_filters or one.producer in request.producer_id_filters)
        ]
        if self.ended_while_asked:
            self.remembered = {0: [], 1: []}
        unknown = [state for state in request.state_filters if state not in STATES]
        return ListTransactionsResponse(transaction_states=listed, unknown_state_filters=unknown)

    def describe_transactions(self, request: Message) -> Message:
        assert isinstance(request, DescribeTransactionsRequest)
        (name,) = request.transactional_ids
        one = self.known.get(name)
        if one is None:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            return DescribeTransactionsResponse(transaction_states=[Described(error_code=code)])
        if one.codes:
            refused = Described(error_code=one.codes.pop(0))
            return DescribeTransactionsResponse(transaction_states=[refused])
        described = Described(
            transactional_id=name,
            transaction_state=one.state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=one.started_at_ms,
            producer_id=one.producer,
            producer_epoch=one.epoch,
            topics=[TopicData(topic=self.topic, partitions=list(one.partitions))],
        )
        return DescribeTransactionsResponse(transaction_states=[described])

    def describe_producers(self, request: Message) -> Message:
        assert isinstance(request, DescribeProducersRequest)
        (asked,) = request.topics
        partitions = [
            PartitionResponse(partition_index=index, active_producers=self.remembered[index])
            for index in asked.partition_indexes
        ]
        topic = TopicResponse(name=asked.name, partitions=partitions)
        return DescribeProducersResponse(topics=[topic])

    def write_txn_markers(self, request: Message) -> Message:
        assert isinstance(request, WriteTxnMarkersRequest)
        (marker,) = request.markers
        (asked,) = marker.topics
        (index,) = asked.partition_indexes
        written = WritableTxnMarkerPartitionResult(
            partition_index=index, error_code=self.marker_code
        )
        topic = WritableTxnMarkerTopicResult(name=asked.name, partitions=[written])
        result = WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[topic])
        return WriteTxnMarkersResponse(markers=[result])


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Admin]:
    patient = Admin(
        cluster.bootstrap,
        connect=cluster.connect,
        retry_backoff_ms=1,
        retry_backoff_max_ms=2,
        metadata_timeout_ms=500,
    )
    async with patient as started:
        yield started


# --- list and describe ------------------------------------------------------------------------


async def test_every_broker_is_asked_for_its_transactions(cluster: Cluster, admin: Admin) -> None:
    cluster.known = {"b": Known(producer=2), "a": Known(producer=1, state="CompleteCommit")}

    listed = await admin.list_transactions()

    assert listed == [
        TransactionListing("a", "CompleteCommit", listed[0].producer, listed[0].coordinator),
        TransactionListing("b", "Ongoing", listed[1].producer, listed[1].coordinator),
    ]
    assert [(one.producer, one.coordinator) for one in listed] == [(1, 2), (2, 2)]
    assert {node for node, api, *_ in cluster.asked if api is ApiKey.LIST_TRANSACTIONS} == {1, 2}


async def test_filters_are_the_brokers_affair(cluster: Cluster, admin: Admin) -> None:
    await admin.list_transactions(states=["Ongoing"], producers=[4, 5], open_for_ms=9_000)

    for asked in cluster.requests(ApiKey.LIST_TRANSACTIONS):
        assert isinstance(asked, ListTransactionsRequest)
        assert (asked.state_filters, asked.producer_id_filters) == (["Ongoing"], [4, 5])
        assert asked.duration_filter == 9_000


async def test_a_state_that_does_not_exist_is_told_with_those_that_do(admin: Admin) -> None:
    with pytest.raises(InvalidRequestError, match="ever Asleep: try Ongoing, Prepared"):
        await admin.list_transactions(states=["Asleep"])


async def test_a_transaction_is_described_by_its_coordinator(
    cluster: Cluster, admin: Admin
) -> None:
    """Also if it has to be asked twice, because it was loading."""
    loading = [int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), int(ErrorCode.NOT_COORDINATOR)]
    cluster.known["pay"] = Known(partitions=(0, 1), codes=loading)
    cluster.known["idle"] = Known(state="Empty", started_at_ms=-1, partitions=())

    found = await admin.describe_transactions(["pay", "idle"])

    pay, idle = found["pay"], found["idle"]
    assert (pay.producer, pay.epoch, pay.state, pay.started_at) == (7, 3, "Ongoing", 1_000)
    assert pay.partitions == (("orders", 0), ("orders", 1))
    assert (str(pay.coordinator), pay.timeout_ms) == ("node-2:9092", 60_000)
    assert pay.open
    assert (idle.started_at, idle.partitions, idle.open) == (None, (), False)


async def test_an_unknown_transactional_id_is_told(admin: Admin) -> None:
    with pytest.raises(TransactionalIdNotFoundError, match="transactional id nobody is not known"):
        await admin.describe_transactions("nobody")


async def test_the_outcome_of_a_transaction_is_asked_for(cluster: Cluster, admin: Admin) -> None:
    cluster.outcome = TxnOutcomeResponse(state="committed", at_ms=5)
    known = await admin.transaction_outcome("pay", 7, 3)
    cluster.outcome = TxnOutcomeResponse(state="unknown", at_ms=-1)
    unknown = await admin.transaction_outcome("pay", 7, 4)

    assert (known, unknown) == (("committed", Millis(5)), ("unknown", None))
    first, second = cluster.requests(ApiKey.TXN_OUTCOME)
    assert first == TxnOutcomeRequest(transactional_id="pay", producer_id=7, producer_epoch=3)
    assert second == TxnOutcomeRequest(transactional_id="pay", producer_id=7, producer_epoch=4)


async def test_a_broker_without_outcomes_is_told_apart(cluster: Cluster, admin: Admin) -> None:
    for transport in cluster.transports:
        transport.close()
    del cluster.versions[ApiKey.TXN_OUTCOME]

    with pytest.raises(UnsupportedVersionError, match="does not offer TXN_OUTCOME"):
        await admin.transaction_outcome("pay", 7, 3)


# --- abort ------------------------------------------------------------------------------------


async def test_an_abort_ends_what_was_described(cluster: Cluster, admin: Admin) -> None:
    cluster.known["pay"] = Known()

    await admin.abort_transaction("pay")

    (asked,) = cluster.requests(ApiKey.END_TXN)
    assert asked == EndTxnRequest(
        transactional_id="pay", producer_id=7, producer_epoch=3, committed=False
    )


async def test_an_abort_of_what_has_ended_is_refused(cluster: Cluster, admin: Admin) -> None:
    cluster.known["pay"] = Known(state="CompleteCommit")

    with pytest.raises(InvalidTxnStateError, match="no open transaction: its last is Comp"):
        await admin.abort_transaction("pay")
    assert cluster.requests(ApiKey.END_TXN) == []


async def test_what_is_prepared_is_aborted_on_purpose_only(cluster: Cluster, admin: Admin) -> None:
    cluster.known["pay"] = Known(state=PREPARED)

    with pytest.raises(InvalidTxnStateError, match="is prepared"):
        await admin.abort_transaction("pay")
    assert cluster.requests(ApiKey.END_TXN) == []

    await admin.abort_transaction("pay", prepared=True)
    assert len(cluster.requests(ApiKey.END_TXN)) == 1


# --- what hangs -------------------------------------------------------------------------------


async def test_open_transactions_are_found_where_they_are_open(
    cluster: Cluster, admin: Admin
) -> None:
    cluster.holds_open(0, producer=1)
    cluster.holds_open(1, producer=2, written_at_ms=LATE_MS - 1)
    cluster.remembered[1].append(ProducerState(producer_id=3))

    found = await admin.open_transactions([("orders", 0), ("orders", 1)])

    assert [(one.partition.partition, one.producer, one.first_offset) for one in found] == [
        (1, 2, 40),
        (0, 1, 40),
    ]


async def test_what_hangs_is_old_and_known_to_nobody(cluster: Cluster, admin: Admin) -> None:
    cluster.holds_open(0, producer=1)
    cluster.holds_open(0, producer=2)
    cluster.holds_open(0, producer=3, written_at_ms=SystemClock().now())
    cluster.holds_open(1, producer=4)
    cluster.known = {
        "in-both": Known(producer=2, partitions=(0, 1)),
        "elsewhere": Known(producer=4, partitions=(0,)),
    }

    found = await admin.hanging_transactions(HOUR_MS // 2, ["orders"])

    assert [(one.partition, one.producer) for one in found] == [
        (TopicPartition("orders", 0), 1),
        (TopicPartition("orders", 1), 4),
    ]


async def test_what_ends_while_coordinators_are_asked_does_not_hang(
    cluster: Cluster, admin: Admin
) -> None:
    cluster.holds_open(0, producer=1)
    cluster.ended_while_asked = True

    assert await admin.hanging_transactions(HOUR_MS // 2, ["orders"]) == []

    cluster.holds_open(0, producer=1)
    await admin.abort_hanging_transaction(("orders", 0), 1)

    assert cluster.requests(ApiKey.WRITE_TXN_MARKERS) == []


async def test_what_hangs_is_ended_by_a_marker_at_its_leader(
    cluster: Cluster, admin: Admin
) -> None:
    cluster.holds_open(1, producer=4)

    await admin.abort_hanging_transaction(("orders", 1), 4)

    ((node, asked),) = [
        (node, asked) for node, api, _, asked in cluster.asked if api is ApiKey.WRITE_TXN_MARKERS
    ]
    assert isinstance(asked, WriteTxnMarkersRequest)
    (marker,) = asked.markers
    assert node == 2
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (4, 5, False)
    assert marker.coordinator_epoch == 0
    assert [(one.name, one.partition_indexes) for one in marker.topics] == [("orders", [1])]


async def test_a_marker_that_is_refused_is_told(cluster: Cluster, admin: Admin) -> None:
    cluster.holds_open(1, producer=4)
    cluster.marker_code = ErrorCode.TRANSACTION_COORDINATOR_FENCED

    with pytest.raises(TransactionCoordinatorFencedError, match="partition orders-1"):
        await admin.abort_hanging_transaction(("orders", 1), 4)


async def test_only_what_hangs_is_ended_in_one_place(cluster: Cluster, admin: Admin) -> None:
    """A transaction that a coordinator knows of ends in all of its partitions or in none."""
    cluster.holds_open(0, producer=7)
    cluster.known["pay"] = Known(producer=7, partitions=(0, 1))

    with pytest.raises(InvalidTxnStateError, match="belongs to transactional id pay"):
        await admin.abort_hanging_transaction(("orders", 0), 7)
    with pytest.raises(InvalidTxnStateError, match="producer 8 has no open transaction"):
        await admin.abort_hanging_transaction(("orders", 0), 8)
    assert cluster.requests(ApiKey.WRITE_TXN_MARKERS) == []
