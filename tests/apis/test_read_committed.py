"""Fetch, ListOffsets and DescribeProducers where transactions are open, committed and aborted."""

from typing import Any

import pytest

from tests.apis.asking import Asking, fetch_request, records_in
from tests.apis.kit import ThreadedNode, batch_of, versions
from waystation.messages.describe_producers import DescribeProducersRequest, TopicRequest
from waystation.messages.list_offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.offsets import Millis
from waystation.partition.partition import Partition
from waystation.records.control import Marker
from waystation.runtime.clock import SystemClock
from waystation.wire.versions import ApiKey

ALL, COMMITTED = -1, 1
ALICE, BOB = 7_000, 8_000
LONG_MS = 15_000


class Transactions:
    """Writes transactions straight into a partition, as coordinators let producers do."""

    def __init__(self, node: ThreadedNode, topic: str) -> None:
        self.node, self.topic = node, topic
        self.sequences = {ALICE: 0, BOB: 0}

    @property
    def partition(self) -> Partition:
        return self.node.node.broker.replicas.get(self.topic, 0)

    def write(self, producer: int, *values: bytes, timestamp: int | None = None) -> None:
        sequence = self.sequences[producer]
        self.sequences[producer] += len(values)
        batch = batch_of(
            *values, producer=(producer, 0, sequence), transactional=True, timestamp=timestamp
        )
        now = SystemClock().now()
        self.node.call(lambda: self.partition.append(memoryview(bytearray(batch)), ALL, now))
        self._until_committed()

    def end(self, producer: int, *, commit: bool, at: Millis | None = None) -> None:
        marker = Marker(ProducerId(producer), ProducerEpoch(0), 3, commit)
        now = SystemClock().now() if at is None else at
        self.node.call(lambda: self.partition.append_marker(marker, now))
        self._until_committed()

    def _until_committed(self) -> None:
        self.node.until(lambda: self.partition.high_watermark == self.partition.log_end)


@pytest.fixture
def transactions(node: ThreadedNode, client: Asking, topic: str) -> Transactions:
    client.create(topic)
    return Transactions(node, topic)


def aborted(found: Any) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in found.aborted_transactions]


def committed(client: Asking, topic: str, offset: int = 0, version: int = 17) -> Any:
    return client.fetch(topic, offset, version=version, isolation_level=COMMITTED)


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_what_is_open_is_shown_only_to_who_wants_it(
    client: Asking, transactions: Transactions, topic: str, version: int
) -> None:
    client.produce(topic, batch_of(b"plain"))
    transactions.write(ALICE, b"open")
    everything = client.fetch(topic, 0, version=version)
    stable = committed(client, topic, version=version)

    assert [one.value for one in records_in(everything)] == [b"plain", b"open"]
    assert (everything.high_watermark, everything.last_stable_offset) == (2, 1)
    assert everything.aborted_transactions is None
    assert [one.value for one in records_in(stable)] == [b"plain"]
    assert (stable.high_watermark, stable.last_stable_offset) == (2, 1)
    assert aborted(stable) == []


def test_aborted_transactions_are_named_where_their_records_are_read(
    client: Asking, transactions: Transactions, topic: str
) -> None:
    transactions.write(ALICE, b"taken back")
    transactions.write(BOB, b"kept")
    transactions.end(BOB, commit=True)
    transactions.end(ALICE, commit=False)
    transactions.write(ALICE, b"kept too")
    transactions.end(ALICE, commit=True)

    found = committed(client, topic)

    assert aborted(found) == [(ALICE, 0)]
    assert found.last_stable_offset == found.high_watermark == 6
    assert aborted(committed(client, topic, 1)) == [(ALICE, 0)]
    assert aborted(committed(client, topic, 4)) == []
    assert client.fetch(topic, 0).aborted_transactions is None


def test_a_reader_at_the_last_stable_offset_waits_for_the_transactions_end(
    client: Asking, other: Asking, transactions: Transactions, topic: str
) -> None:
    transactions.write(ALICE, b"a")
    request = fetch_request(topic, 0, isolation_level=COMMITTED, max_wait_ms=LONG_MS, min_bytes=1)
    client.send(request, 11)
    other.produce(topic, batch_of(b"behind it"))

    assert not client.has_reply(within_s=0.05)
    transactions.end(ALICE, commit=True)
    (answer,) = client.receive(ApiKey.FETCH, 11).responses
    assert answer.partitions[0].last_stable_offset == 3
    assert len(bytes(answer.partitions[0].records)) > 0


def test_a_reader_past_the_last_stable_offset_gets_nothing_and_no_error(
    client: Asking, transactions: Transactions, topic: str
) -> None:
    transactions.write(ALICE, b"a", b"b")

    for offset in (0, 1, 2):
        found = committed(client, topic, offset)
        assert (found.error_code, bytes(found.records)) == (0, b"")


def offsets(client: Asking, topic: str, at: int, isolation: int) -> tuple[int, int]:
    asked = ListOffsetsPartition(partition_index=0, timestamp=at)
    request = ListOffsetsRequest(
        isolation_level=isolation, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    told = client.ask(request, 9).topics[0].partitions[0]
    assert told.error_code == 0
    return told.offset, told.timestamp


def test_offsets_past_the_last_stable_one_are_not_shown(
    client: Asking, transactions: Transactions, topic: str
) -> None:
    client.produce(topic, batch_of(b"plain", timestamp=1_000))
    transactions.write(ALICE, b"open", timestamp=2_000)

    assert offsets(client, topic, LATEST, 0) == (2, -1)
    assert offsets(client, topic, LATEST, COMMITTED) == (1, -1)
    assert offsets(client, topic, EARLIEST, COMMITTED) == (0, -1)
    assert offsets(client, topic, 1_500, 0) == (1, 2_000)
    assert offsets(client, topic, 1_500, COMMITTED) == (-1, -1)
    assert offsets(client, topic, 500, COMMITTED) == (0, 1_000)
    assert offsets(client, topic, MAX_TIMESTAMP, COMMITTED) == (-1, -1)

    transactions.end(ALICE, commit=True, at=Millis(1_000))

    assert offsets(client, topic, LATEST, COMMITTED) == (3, -1)
    assert offsets(client, topic, 1_500, COMMITTED) == (1, 2_000)


def test_producers_are_described_with_their_transactions(
    client: Asking, transactions: Transactions, topic: str
) -> None:
    client.produce(topic, batch_of(b"plain"))
    transactions.write(ALICE, b"open")
    transactions.write(BOB, b"ended")
    transactions.end(BOB, commit=False)

    asked = TopicRequest(name=topic, partition_indexes=[0])
    (told,) = client.ask(DescribeProducersRequest(topics=[asked]), 0).topics[0].partitions
    described = {one.producer_id: one for one in told.active_producers}

    assert (described[ALICE].current_txn_start_offset, described[ALICE].coordinator_epoch) == (
        1,
        -1,
    )
    assert (described[BOB].current_txn_start_offset, described[BOB].coordinator_epoch) == (-1, 3)
