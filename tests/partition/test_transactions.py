"""Transactions in a partition: who may begin and end them, what readers see of them."""

from pathlib import Path

import pytest

from tests.partition.building import MEMORY, NOW, World, batch_of, led, offset
from waystation.model.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    NotLeaderError,
    TransactionCoordinatorFencedError,
)
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.topics import TopicSettings
from waystation.partition.partition import Partition
from waystation.records.batch import BatchBuilder
from waystation.records.control import Marker, read_marker
from waystation.records.header import batches

ALL = -1
ALICE, BOB = ProducerId(1), ProducerId(2)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "data")


@pytest.fixture
def partition(world: World) -> Partition:
    made = world.partition(MEMORY)
    made.follow_store(led())
    return made


def written(producer: ProducerId, sequence: int, *values: bytes, epoch: int = 0) -> memoryview:
    builder = BatchBuilder(
        producer_id=producer,
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=sequence,
        is_transactional=True,
    )
    for value in values or (b"x",):
        builder.append(None, value, timestamp=NOW)
    return memoryview(bytearray(builder.build()))


def marker(
    producer: ProducerId, *, commit: bool = True, epoch: int = 0, coordinator_epoch: int = 0
) -> Marker:
    return Marker(producer, ProducerEpoch(epoch), coordinator_epoch, commit)


def stable(partition: Partition, at: int = 0) -> list[int]:
    region = partition.read(offset(at), 1 << 20, at_least_one=True, stable_only=True).region
    return [] if region is None else [header.base_offset for _, header in batches(region.read())]


def test_readers_of_stable_records_stop_before_the_first_open_transaction(
    partition: Partition,
) -> None:
    partition.append(batch_of(b"plain"), ALL, NOW)
    partition.append(written(ALICE, 0), ALL, NOW)
    partition.append(batch_of(b"plain"), ALL, NOW)

    assert (partition.high_watermark, partition.last_stable) == (3, 1)
    assert stable(partition) == [0]

    partition.append_marker(marker(ALICE), NOW)

    assert (partition.high_watermark, partition.last_stable) == (4, 4)
    assert stable(partition) == [0, 1, 2, 3]


def test_a_marker_counts_once_it_is_committed(world: World) -> None:
    partition = world.partition()
    partition.follow_store(led())
    partition.append(written(ALICE, 0), ALL, NOW)
    world.flusher.sync()
    partition.append_marker(marker(ALICE), NOW)

    assert (partition.high_watermark, partition.last_stable) == (1, 0)
    world.flusher.sync()
    assert (partition.high_watermark, partition.last_stable) == (2, 2)


def test_a_marker_is_a_batch_of_its_own_under_the_leaders_epoch(partition: Partition) -> None:
    partition.follow_store(led(epoch=5))
    appended = partition.append_marker(marker(ALICE, commit=False, coordinator_epoch=3), NOW)

    region = partition.read(offset(0), 1 << 20, at_least_one=True).region
    assert region is not None
    content = region.read()
    assert read_marker(content) == marker(ALICE, commit=False, coordinator_epoch=3)
    assert next(batches(content))[1].partition_leader_epoch == 5
    assert appended == (0, 0, NOW, False)


def test_a_marker_without_a_transaction_changes_nothing_for_readers(partition: Partition) -> None:
    partition.append(written(BOB, 0), ALL, NOW)
    partition.append_marker(marker(ALICE, commit=False), NOW)

    assert partition.last_stable == 0
    assert partition.log.aborted(offset(0), offset(9)) == []


def test_a_marker_is_written_where_replicas_are_missing(world: World) -> None:
    partition = world.partition(TopicSettings(min_insync_replicas=2, durability="memory"))
    partition.follow_store(led())

    assert partition.append_marker(marker(ALICE), NOW).base_offset == 0


def test_only_a_leader_writes_markers(world: World) -> None:
    with pytest.raises(NotLeaderError):
        world.partition().append_marker(marker(ALICE), NOW)


def test_a_marker_that_comes_too_late_leaves_no_trace(partition: Partition) -> None:
    partition.append(written(ALICE, 0, epoch=2), ALL, NOW)
    partition.append_marker(marker(BOB, coordinator_epoch=4), NOW)

    with pytest.raises(InvalidProducerEpochError):
        partition.append_marker(marker(ALICE, epoch=1), NOW)
    with pytest.raises(TransactionCoordinatorFencedError):
        partition.append_marker(marker(BOB, coordinator_epoch=3), NOW)
    assert partition.log_end == 2
    assert partition.in_transaction(ALICE, ProducerEpoch(2))


def test_a_transaction_begins_only_where_its_coordinator_knows_of_it(
    partition: Partition,
) -> None:
    with pytest.raises(InvalidTxnStateError):
        partition.append(written(ALICE, 0), ALL, NOW, may_begin=False)
    assert partition.log_end == 0

    partition.append(written(ALICE, 0), ALL, NOW)
    partition.append(written(ALICE, 1), ALL, NOW, may_begin=False)

    assert partition.in_transaction(ALICE, ProducerEpoch(0))
    assert not partition.in_transaction(ALICE, ProducerEpoch(1))
    assert not partition.in_transaction(BOB, ProducerEpoch(0))


def test_a_late_batch_cannot_join_the_transaction_after_its_own(partition: Partition) -> None:
    """Every transaction has an epoch of its own: the marker brings the next one."""
    partition.append(written(ALICE, 0), ALL, NOW)
    partition.append_marker(marker(ALICE, epoch=1), NOW)

    with pytest.raises(InvalidProducerEpochError):
        partition.append(written(ALICE, 1), ALL, NOW)
    partition.append(written(ALICE, 0, epoch=1), ALL, NOW)
    with pytest.raises(InvalidProducerEpochError):
        partition.append_marker(marker(ALICE, epoch=0), NOW)


def test_open_transactions_are_listed_with_all_an_operator_needs(partition: Partition) -> None:
    partition.append_marker(marker(ALICE, epoch=6, coordinator_epoch=3), NOW)
    partition.append(written(ALICE, 0, epoch=6), ALL, NOW)
    partition.append(written(BOB, 0), ALL, NOW)
    partition.append_marker(marker(BOB), NOW)

    (one,) = partition.open_transactions()

    assert one == (ALICE, 6, 3, 1, NOW, NOW, 1)


def test_readers_are_told_when_a_transaction_ends(world: World, partition: Partition) -> None:
    partition.append(written(ALICE, 0), ALL, NOW)
    told: list[int] = []
    partition.read_waiters.add(lambda: told.append(partition.last_stable))
    world.turn()
    partition.append_marker(marker(ALICE), NOW)
    world.turn()

    assert told[-1] == 2


def test_deleting_records_of_an_open_transaction_moves_what_is_stable(
    partition: Partition,
) -> None:
    partition.append(written(ALICE, 0), ALL, NOW)
    partition.append(batch_of(b"plain"), ALL, NOW)
    partition.delete_records(offset(1))

    assert partition.last_stable == partition.log.log_start == 1
    partition.append_marker(marker(ALICE, commit=False), NOW)
    assert partition.last_stable == 3


def test_whoever_leads_next_knows_what_is_open(partition: Partition) -> None:
    partition.append(written(ALICE, 0), ALL, NOW)
    partition.append(batch_of(b"plain"), ALL, NOW)
    partition.follow_store(led(epoch=1))

    assert (partition.mark, partition.stable) == (partition.high_watermark, 0)
    partition.append_marker(marker(ALICE), NOW)
    assert partition.last_stable == 3


def test_where_nobody_leads_nothing_is_stable(world: World) -> None:
    partition = world.partition(MEMORY)

    assert partition.stable == -1
    assert partition.last_stable == partition.log.log_start
