"""A replica that another node leads: it holds what the leader has, and counts what is left."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.partition.building import ELSEWHERE, HERE, MEMORY, NOW, World
from waystation.model.errors import CorruptBatchError, NotLeaderError
from waystation.model.ids import NO_LEADER_EPOCH, BrokerEpoch, LeaderEpoch
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.partition.leadership import Leadership
from waystation.partition.partition import ACKS_ALL, Partition
from waystation.records.batch import BatchBuilder
from waystation.records.header import stamp
from waystation.replication.follower import ReplicaLog
from waystation.replication.lag import Paces
from waystation.storage.journal import FOLDER, Journal

BOTH = (HERE, ELSEWHERE)


def batch(base: int, value: bytes = b"x", epoch: int = 1) -> bytes:
    builder = BatchBuilder()
    builder.append(None, value, timestamp=NOW)
    content = bytearray(builder.build())
    stamp(memoryview(content), 0, Offset(base), LeaderEpoch(epoch))
    return bytes(content)


def follow(partition: Partition, *contents: bytes) -> None:
    partition.append_replicated(memoryview(bytearray(b"".join(contents))), NOW)


def followed_elsewhere(world: World, settings: TopicSettings | None = None) -> Partition:
    partition = world.partition(settings) if settings is not None else world.partition()
    partition.follow_store(Leadership(ELSEWHERE, LeaderEpoch(1), BOTH))
    return partition


def content_of(partition: Partition) -> bytes:
    found = partition.log.read(partition.log_start, 1 << 20, partition.log_end)
    return b"" if found.region is None else bytes(found.region.read())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_follower_holds_the_leaders_bytes(world: World) -> None:
    partition = followed_elsewhere(world)
    replica: ReplicaLog = partition
    follow(partition, batch(0, b"a"), batch(1, b"b", epoch=2), batch(2)[:20])

    assert content_of(partition) == batch(0, b"a") + batch(1, b"b", epoch=2)
    assert (replica.log_end, replica.safe_end, replica.epochs.latest) == (2, 0, 2)

    world.flusher.sync()

    assert replica.safe_end == 2


def test_what_cannot_follow_is_refused_and_what_came_before_stays(world: World) -> None:
    partition = followed_elsewhere(world)
    with pytest.raises(CorruptBatchError):
        follow(partition, batch(0), batch(0))

    assert partition.log_end == 1


def test_a_follower_knows_of_commits_only_as_far_as_its_log_reaches(world: World) -> None:
    partition = followed_elsewhere(world)
    follow(partition, batch(0), batch(1))
    partition.learn(Offset(9), Offset(1))

    assert (partition.followed_mark, partition.log_start) == (2, 1)

    partition.learn(Offset(1), Offset(0))

    assert (partition.followed_mark, partition.log_start) == (2, 1)


def test_a_new_leader_begins_with_the_mark_that_it_knew(world: World) -> None:
    partition = followed_elsewhere(world)
    follow(partition, batch(0), batch(1))
    partition.learn(Offset(1), Offset(0))
    partition.follow_store(Leadership(HERE, LeaderEpoch(2), BOTH))

    assert partition.high_watermark == 1


@pytest.mark.parametrize("seen", ["step by step", "at once"])
def test_a_copy_that_was_given_up_is_not_taken_for_the_next_one(world: World, seen: str) -> None:
    """In the same life: a replica is moved away and back while one leader leads."""
    partition, life = world.partition(MEMORY), BrokerEpoch(5)
    paces = partition.paces = Paces(HERE, BOTH, 1_000, Millis(0))
    states = [
        Leadership(HERE, LeaderEpoch(1), BOTH, replicas=BOTH, version=1),
        Leadership(HERE, LeaderEpoch(1), (HERE,), replicas=(HERE,), version=2),
        Leadership(HERE, LeaderEpoch(1), (HERE,), replicas=BOTH, version=2),
    ]
    partition.follow_store(states[0])
    partition.paces = paces
    partition.append(memoryview(bytearray(batch(0))), 1, NOW)
    partition.followed_by(ELSEWHERE, life, Offset(1), LeaderEpoch(1), Offset(1), Millis(1))
    assert (partition.high_watermark, paces.end_of(ELSEWHERE)) == (1, 1)

    for state in states[1:] if seen == "step by step" else [states[2]]:
        partition.follow_store(state)
    assert paces.end_of(ELSEWHERE) is None

    partition.followed_by(ELSEWHERE, life, Offset(0), NO_LEADER_EPOCH, Offset(0), Millis(2))
    partition.propose(BOTH)
    partition.append(memoryview(bytearray(batch(0))), 1, NOW)
    assert (partition.high_watermark, paces.end_of(ELSEWHERE)) == (1, 0)


def test_a_leader_that_must_follow_remembers_its_mark(world: World) -> None:
    partition = world.partition(MEMORY)
    partition.follow_store(Leadership(HERE, LeaderEpoch(1), (HERE,)))
    partition.append(memoryview(bytearray(batch(0))), 1, NOW)
    partition.follow_store(Leadership(ELSEWHERE, LeaderEpoch(2), BOTH))

    assert (partition.leading, partition.followed_mark) == (False, 1)


def test_a_tail_that_is_cut_takes_its_mark_along(world: World) -> None:
    partition = followed_elsewhere(world)
    follow(partition, batch(0), batch(1), batch(2))
    partition.learn(Offset(3), Offset(0))
    partition.truncate_to(Offset(2))

    assert (partition.log_end, partition.safe_end, partition.followed_mark) == (2, 2, 2)

    partition.start_at(Offset(70))

    assert (partition.log_start, partition.log_end, partition.followed_mark) == (70, 70, 70)


def test_a_leader_does_not_follow(world: World) -> None:
    partition = world.partition()
    partition.follow_store(Leadership(HERE, LeaderEpoch(1), (HERE,)))

    with pytest.raises(AssertionError):
        follow(partition, batch(0))
    with pytest.raises(AssertionError):
        partition.truncate_to(Offset(0))


class Journaling:
    """A follower that writes through a journal, whose rounds end when the test says so."""

    def __init__(self, world: World) -> None:
        self.partition = followed_elsewhere(world)
        self.work: list[Callable[[], None]] = []
        folder = world.directory.path / FOLDER
        folder.mkdir()
        world.directory.journal = Journal(
            world.directory.disk,
            folder,
            submit=self.work.append,
            background=lambda _: None,
            post=lambda work: work(),
            defer=lambda _s, work: work(),
            fail=pytest.fail,
        )
        self.partition.relocate(self.partition.log, world.directory.journal)

    def end_round(self) -> None:
        self.work.pop(0)()


def test_small_batches_are_safe_in_the_journal(world: World) -> None:
    following = Journaling(world)
    follow(following.partition, batch(0))

    assert following.partition.safe_end == 0

    following.end_round()

    assert following.partition.safe_end == 1


def test_who_catches_up_syncs_files_and_spares_the_journal(world: World) -> None:
    following = Journaling(world)
    partition = following.partition
    follow(partition, *(batch(n, b"x" * 30_000) for n in range(11)))

    assert not following.work
    assert (partition.log_end, partition.safe_end) == (11, 0)
    world.flusher.sync()
    assert partition.safe_end == 11
    with pytest.raises(CorruptBatchError):
        follow(partition, *(batch(n, b"x" * 30_000) for n in (*range(11, 21), 3)))
    world.flusher.sync()
    assert partition.safe_end == partition.log_end == 21
    follow(partition, batch(21))
    following.end_round()
    assert partition.safe_end == 22


def test_a_round_that_began_before_a_cut_says_nothing_of_what_came_after(world: World) -> None:
    following = Journaling(world)
    partition = following.partition
    follow(partition, batch(0, b"a"))
    following.end_round()
    follow(partition, batch(1, b"b"))
    partition.truncate_to(Offset(1))
    follow(partition, batch(1, b"c", epoch=2))
    following.end_round()

    assert (partition.log_end, partition.safe_end) == (2, 1)

    following.end_round()

    assert partition.safe_end == 2


def test_what_follows_a_gap_is_synced_in_the_logs_own_files(world: World) -> None:
    following = Journaling(world)
    follow(following.partition, batch(5))

    assert following.work == []

    world.flusher.sync()

    assert following.partition.safe_end == 6


def test_while_nobody_can_confirm_it_nobody_waits(world: World) -> None:
    partition = world.partition(MEMORY)
    partition.follow_store(Leadership(HERE, LeaderEpoch(1), BOTH, replicas=BOTH, version=1))
    partition.append(memoryview(bytearray(batch(0))), ACKS_ALL, NOW)
    told: list[object] = []
    assert not partition.when_committed(Offset(1), told.append)
    partition.doubt([ELSEWHERE])

    assert isinstance(told[0], NotLeaderError)
    with pytest.raises(NotLeaderError, match="replicas on 2"):
        partition.append(memoryview(bytearray(batch(0))), ACKS_ALL, NOW)
    assert partition.append(memoryview(bytearray(batch(0))), 1, NOW).base_offset == 1
    assert partition.log_end == 2

    partition.trust()
    partition.append(memoryview(bytearray(batch(0))), ACKS_ALL, NOW)
    life = BrokerEpoch(5)
    partition.followed_by(ELSEWHERE, life, Offset(3), LeaderEpoch(1), Offset(3), Millis(1))
    assert partition.high_watermark == 3


def test_another_leader_ends_the_doubt(world: World) -> None:
    partition = world.partition(MEMORY)
    partition.follow_store(Leadership(HERE, LeaderEpoch(1), BOTH, replicas=BOTH, version=1))
    partition.doubt([ELSEWHERE])
    partition.follow_store(Leadership(ELSEWHERE, LeaderEpoch(2), BOTH, replicas=BOTH, version=2))

    assert not partition.in_doubt
