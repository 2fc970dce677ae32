"""A partition: who may write, what is committed, who is told, what may be read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.partition.building import (
    ELSEWHERE,
    HERE,
    MEMORY,
    NOW,
    World,
    batch_of,
    led,
    offset,
)
from waystation.model.errors import (
    ErrorCode,
    FencedLeaderEpochError,
    InvalidRecordError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownLeaderEpochError,
    WaystationError,
)
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import Millis
from waystation.model.topics import TopicSettings
from waystation.partition.leadership import Leadership
from waystation.partition.partition import Partition
from waystation.records.header import batches

ALL, LEADER = -1, 1


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "data")


@pytest.fixture
def partition(world: World) -> Partition:
    made = world.partition()
    made.follow_store(led())
    return made


class Ear:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[WaystationError | None] = []

    def __call__(self, outcome: WaystationError | None = None) -> None:
        self.heard.append(outcome)


def read(partition: Partition, at: int, max_bytes: int = 1 << 20) -> list[int]:
    region = partition.read(offset(at), max_bytes, at_least_one=True).region
    return [] if region is None else [header.base_offset for _, header in batches(region.read())]


# --- who may write ------------------------------------------------------------------------------


def test_nobody_writes_where_nobody_leads(world: World) -> None:
    partition = world.partition()

    with pytest.raises(NotLeaderError):
        partition.append(batch_of(b"x"), ALL, NOW)
    partition.follow_store(led(ELSEWHERE, 3))
    with pytest.raises(NotLeaderError) as told:
        partition.append(batch_of(b"x"), ALL, NOW)
    assert (told.value.leader, told.value.epoch) == (ELSEWHERE, 3)


def test_a_batch_is_stamped_with_the_leaders_epoch(partition: Partition) -> None:
    partition.follow_store(led(epoch=5))
    partition.append(batch_of(b"x"), ALL, NOW)

    assert partition.log.epochs.latest == 5


def test_what_is_refused_leaves_no_trace(partition: Partition) -> None:
    with pytest.raises(InvalidRecordError):
        partition.append(memoryview(bytearray(10)), ALL, NOW)

    assert partition.log_end == 0
    assert partition.meter.produced_records.value == 0


def test_acks_all_needs_enough_replicas_and_others_do_not(world: World) -> None:
    partition = world.partition(TopicSettings(min_insync_replicas=2))
    partition.follow_store(led())

    assert partition.under_min_insync
    with pytest.raises(NotEnoughReplicasError):
        partition.append(batch_of(b"x"), ALL, NOW)
    assert partition.append(batch_of(b"x"), LEADER, NOW).base_offset == 0


# --- what is committed --------------------------------------------------------------------------


def test_with_durability_disk_a_batch_is_committed_once_it_is_synced(
    world: World, partition: Partition
) -> None:
    ear = Ear()
    partition.append(batch_of(b"a", b"b"), ALL, NOW)

    assert not partition.when_committed(offset(2), ear)
    assert (partition.high_watermark, ear.heard) == (0, [])
    world.flusher.sync()
    assert (partition.high_watermark, ear.heard) == (2, [None])
    assert partition.when_committed(offset(2), ear)


def test_with_durability_memory_a_batch_is_committed_at_once(world: World) -> None:
    partition = world.partition(MEMORY)
    partition.follow_store(led())
    partition.append(batch_of(b"a"), ALL, NOW)

    assert partition.when_committed(offset(1), Ear())
    assert world.flusher.wanted == {}


def test_so_many_records_in_memory_are_synced(world: World) -> None:
    partition = world.partition(TopicSettings(durability="memory", flush_messages=3))
    partition.follow_store(led())
    partition.append(batch_of(b"a", b"b"), ALL, NOW)
    assert world.flusher.wanted == {}
    partition.append(batch_of(b"c"), ALL, NOW)

    world.flusher.sync()
    assert partition.log.flushed_end == 3


def test_what_waited_too_long_in_memory_is_synced(world: World) -> None:
    partition = world.partition(TopicSettings(durability="memory", flush_ms=100))
    partition.follow_store(led())
    partition.append(batch_of(b"a"), ALL, NOW)
    partition.sync_if_due(Millis(NOW + 99))
    assert world.flusher.wanted == {}
    partition.sync_if_due(Millis(NOW + 100))

    assert world.flusher.wanted


def test_a_new_durability_counts_from_the_next_sync(world: World, partition: Partition) -> None:
    ear = Ear()
    partition.append(batch_of(b"a"), ALL, NOW)
    partition.when_committed(offset(1), ear)
    partition.reconfigure(MEMORY)

    assert (partition.high_watermark, ear.heard) == (1, [None])


def test_fewer_needed_replicas_free_who_waits(world: World) -> None:
    partition = world.partition(TopicSettings(min_insync_replicas=2, durability="memory"))
    partition.follow_store(led())
    ear, news = Ear(), Ear()
    partition.append(batch_of(b"a"), LEADER, NOW)
    partition.when_committed(offset(1), ear)
    partition.read_waiters.add(news)
    partition.reconfigure(MEMORY)
    world.turn()

    assert ear.heard == news.heard == [None]


# --- who is told --------------------------------------------------------------------------------


def test_losing_the_lead_tells_everyone_who_waits(world: World, partition: Partition) -> None:
    ear, news = Ear(), Ear()
    partition.append(batch_of(b"a"), ALL, NOW)
    partition.when_committed(offset(1), ear)
    partition.read_waiters.add(news)
    partition.follow_store(led(ELSEWHERE, 1))
    world.turn()

    assert isinstance(ear.heard[0], NotLeaderError)
    assert news.heard == [None]
    assert partition.mark == -1


def test_a_failed_sync_tells_everyone_who_waits(world: World, partition: Partition) -> None:
    ear, news = Ear(), Ear()
    partition.append(batch_of(b"a"), ALL, NOW)
    partition.when_committed(offset(1), ear)
    partition.read_waiters.add(news)
    world.flusher.fail()
    world.turn()

    assert isinstance(ear.heard[0], StorageError)
    assert news.heard == [None]
    with pytest.raises(StorageError):
        partition.append(batch_of(b"b"), ALL, NOW)
    with pytest.raises(StorageError):
        read(partition, 0)


def test_readers_hear_of_many_batches_once_per_turn(world: World) -> None:
    partition = world.partition(MEMORY)
    partition.follow_store(led())
    news = Ear()
    partition.read_waiters.add(news)
    for _ in range(5):
        partition.append(batch_of(b"a"), ALL, NOW)
    world.turn()

    assert news.heard == [None]


# --- what may be read ---------------------------------------------------------------------------


def test_nothing_is_read_that_is_not_committed(world: World, partition: Partition) -> None:
    partition.append(batch_of(b"a"), ALL, NOW)
    world.flusher.sync()
    partition.append(batch_of(b"b"), ALL, NOW)

    assert read(partition, 0) == [0]
    assert read(partition, 1) == []
    assert read(partition, 2) == []
    with pytest.raises(OffsetOutOfRangeError):
        read(partition, 3)
    world.flusher.sync()
    assert read(partition, 0) == [0, 1]


@pytest.mark.parametrize(
    ("claimed", "error"),
    [(-1, None), (4, None), (3, FencedLeaderEpochError), (5, UnknownLeaderEpochError)],
)
def test_a_readers_idea_of_the_epoch_is_checked(
    partition: Partition, claimed: int, error: type[WaystationError] | None
) -> None:
    partition.follow_store(led(epoch=4))

    def check() -> object:
        return partition.check_epoch(claimed)

    if error is None:
        check()
    else:
        with pytest.raises(error):
            check()


def test_epochs_that_wrote_nothing_end_where_the_log_does(partition: Partition) -> None:
    def end_of(epoch: int) -> tuple[int, int]:
        return tuple(partition.epoch_end(LeaderEpoch(epoch)))  # type: ignore[return-value]

    assert end_of(0) == (0, 0)
    assert end_of(1) == (-1, -1)
    partition.append(batch_of(b"a"), ALL, NOW)
    partition.follow_store(led(epoch=3))
    assert [end_of(epoch) for epoch in (0, 1, 3, 4)] == [(0, 1), (0, 1), (3, 1), (-1, -1)]
    partition.append(batch_of(b"b"), ALL, NOW)
    assert [end_of(epoch) for epoch in (0, 1, 2, 3, 4)] == [
        (0, 1),
        (0, 1),
        (0, 1),
        (3, 2),
        (-1, -1),
    ]


# --- deleting -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "start"), [(1, 1), (2, 2), (-1, 2), (0, 0)])
def test_records_before_an_offset_are_deleted(
    world: World, partition: Partition, before: int, start: int
) -> None:
    partition.append(batch_of(b"a"), ALL, NOW)
    partition.append(batch_of(b"b"), ALL, NOW)
    world.flusher.sync()

    assert partition.delete_records(offset(before)) == start


def test_what_is_not_committed_cannot_be_deleted(world: World, partition: Partition) -> None:
    partition.append(batch_of(b"a"), ALL, NOW)

    assert partition.delete_records(offset(-1)) == 0
    for before in (1, -2):
        with pytest.raises(OffsetOutOfRangeError) as told:
            partition.delete_records(offset(before))
        assert told.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_dropped_partition_answers_nobody(world: World, partition: Partition) -> None:
    partition.drop()
    refusals: list[Callable[[], object]] = [
        lambda: partition.append(batch_of(b"a"), ALL, NOW),
        lambda: partition.check_epoch(-1),
        lambda: partition.delete_records(offset(-1)),
    ]

    for refused in refusals:
        with pytest.raises(NotLeaderError):
            refused()


def test_an_unanswered_change_counts_while_the_stored_state_is_the_same(world: World) -> None:
    partition = world.partition()
    partition.follow_store(Leadership(HERE, LeaderEpoch(1), (HERE,), (), (HERE,), 5))
    partition.propose((HERE, ELSEWHERE))
    partition.follow_store(Leadership(HERE, LeaderEpoch(1), (HERE,), (), (HERE, ELSEWHERE), 5))
    assert partition.state is not None

    assert partition.state.in_sync.proposed == (HERE, ELSEWHERE)
    partition.follow_store(Leadership(HERE, LeaderEpoch(1), (HERE,), (), (HERE, ELSEWHERE), 6))
    assert partition.state.in_sync.proposed is None
