"""What a leader tells its followers: everything once, at once, and after it has checked them."""

from pathlib import Path

import pytest

from tests.partition.building import DISK, ELSEWHERE, HERE, MEMORY, NOW, World, batch_of, offset
from waystation.broker.replica_session import MARKS_WAIT_S, Asked, Told
from waystation.broker.replica_sessions import ReplicaSessions
from waystation.broker.replicas import Replicas
from waystation.broker.throttle import LeaderThrottle
from waystation.model.error_codes import ErrorCode
from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId
from waystation.model.offsets import Millis
from waystation.model.topics import TopicSettings
from waystation.partition.leadership import Leadership
from waystation.partition.partition import Partition
from waystation.records.header import batches
from waystation.replication.lag import Paces
from waystation.runtime.clock import ManualClock
from waystation.runtime.timers import Timers
from waystation.telemetry.metrics import Counter

LIFE = BrokerEpoch(5)
BOTH = (HERE, ELSEWHERE)
UNLIMITED = (1 << 63) - 1


class Leader:
    """Two partitions led here in epoch 3, and one follower."""

    def __init__(self, path: Path, settings: TopicSettings = MEMORY) -> None:
        self.world = World(path / "data")
        self.replicas = Replicas()
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.partitions = [self.world.partition(settings, number) for number in range(2)]
        for partition in self.partitions:
            partition.follow_store(led())
            partition.paces = Paces(HERE, BOTH, 1_000, Millis(0))
            self.replicas.add(partition)
        throttle = LeaderThrottle(lambda: UNLIMITED, self.clock.monotonic)
        self.sessions = ReplicaSessions(
            self.replicas,
            throttle,
            self.clock,
            self.timers,
            lambda: 1,
            Counter(),
            lambda run: self.world.deferred.append(run),
        )
        self.session = self.sessions.open(ELSEWHERE, LIFE)
        self.answers: list[list[Told]] = []

    def fetch(self, *asked: Asked, max_bytes: int = 1 << 20) -> None:
        self.session.fetch(asked, [], 500, max_bytes, self.answers.append)

    def append(self, number: int = 0, value: bytes = b"x") -> None:
        self.partitions[number].append(batch_of(value), 1, NOW)

    def turn(self) -> None:
        while self.world.deferred:
            self.world.turn()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.timers.run_due()


def led(leader: NodeId = HERE, epoch: int = 3) -> Leadership:
    return Leadership(leader, LeaderEpoch(epoch), BOTH, (), BOTH)


def asked(
    partition: Partition,
    at: int = 0,
    *,
    epoch: int = 3,
    last_epoch: int | None = None,
    flushed: int = 0,
    max_bytes: int = 1 << 20,
) -> Asked:
    last = (3 if at else -1) if last_epoch is None else last_epoch
    key = partition.topic_id, partition.name.partition
    return Asked(key, epoch, offset(at), LeaderEpoch(last), offset(flushed), max_bytes)


def values(told: Told) -> int:
    return 0 if told.region is None else len(list(batches(told.region.read())))


@pytest.fixture
async def leader(tmp_path: Path) -> Leader:
    return Leader(tmp_path)


async def test_a_fetch_waits_for_the_next_append_of_any_partition(leader: Leader) -> None:
    one, two = leader.partitions
    leader.fetch(asked(one), asked(two))
    leader.pass_time(MARKS_WAIT_S * 2)
    ((first, second),) = leader.answers
    assert (first.high_watermark, second.log_start) == (0, 0), "marks that were not known yet"
    leader.fetch(asked(one), asked(two))
    leader.append(0)
    leader.append(1)
    leader.append(1)
    leader.turn()

    found = leader.answers[1]
    assert [values(told) for told in found] == [1, 2], "one answer for one turn"
    assert one.high_watermark == 0, "what is not committed is copied all the same"


async def test_a_question_is_answered_once_and_the_others_stand(leader: Leader) -> None:
    one, two = leader.partitions
    leader.append(0)
    leader.fetch(asked(one), asked(two))
    assert [told.key[1] for told in leader.answers[0]] == [0, 1]
    leader.pass_time(MARKS_WAIT_S)
    leader.fetch(asked(one, 1), asked(two))
    leader.append(1)
    leader.turn()
    assert sorted(told.key[1] for told in leader.answers[1]) == [0, 1], "marks go along"
    leader.fetch()
    leader.append(0)
    leader.append(1)
    leader.turn()

    assert len(leader.answers) == 2, "nobody asked for more"


async def test_the_next_fetch_ends_the_one_that_waits(leader: Leader) -> None:
    one, two = leader.partitions
    leader.fetch(asked(one))
    leader.fetch(asked(two))

    assert len(leader.answers) == 1
    leader.append(1)
    leader.turn()
    assert values(leader.answers[1][-1]) == 1


async def test_an_end_counts_once_it_was_flushed(tmp_path: Path) -> None:
    leader = Leader(tmp_path, DISK)
    one = leader.partitions[0]
    leader.append(0)
    leader.world.flusher.sync()
    leader.fetch(asked(one))
    leader.fetch(asked(one, 1))

    assert one.high_watermark == 0
    leader.fetch(asked(one, 1, flushed=1, max_bytes=0))
    assert one.high_watermark == 1
    leader.pass_time(MARKS_WAIT_S * 2)
    assert [told.high_watermark for told in leader.answers[-1]] == [1]


@pytest.mark.parametrize(
    ("claim", "error"),
    [
        ({"epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 4}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"at": 9, "last_epoch": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
async def test_what_is_refused_does_not_count(
    leader: Leader, claim: dict[str, int], error: ErrorCode
) -> None:
    one = leader.partitions[0]
    leader.append(0)
    leader.fetch(asked(one, **{"at": 1, **claim}))
    ((told,),) = leader.answers

    assert told.error is not None
    assert told.error.code == error
    assert one.high_watermark == 0


async def test_a_log_that_parts_is_told_where_and_does_not_count(leader: Leader) -> None:
    one = leader.partitions[0]
    leader.append(0)
    leader.fetch(asked(one, 1, last_epoch=2))
    ((told,),) = leader.answers

    assert told.diverging is not None
    assert told.diverging.end == 0
    assert one.high_watermark == 0


async def test_nobody_has_flushed_more_than_it_has(tmp_path: Path) -> None:
    leader = Leader(tmp_path, DISK)
    one = leader.partitions[0]
    leader.append(0)
    leader.append(0)
    leader.world.flusher.sync()
    leader.fetch(asked(one, 1, flushed=1 << 62))

    assert one.high_watermark == 1


async def test_who_was_given_no_replica_gets_none(leader: Leader) -> None:
    stranger = leader.sessions.open(NodeId(9), LIFE)
    stranger.fetch([asked(leader.partitions[0])], [], 500, 1 << 20, leader.answers.append)
    ((told,),) = leader.answers

    assert told.error is not None
    assert told.error.code == ErrorCode.REPLICA_NOT_AVAILABLE


async def test_followers_hear_that_nobody_leads_here_any_more(leader: Leader) -> None:
    one, two = leader.partitions
    leader.fetch(asked(one), asked(two))
    leader.pass_time(MARKS_WAIT_S * 2)
    leader.fetch(asked(one), asked(two))
    one.follow_store(led(ELSEWHERE, 4))
    leader.turn()
    (told,) = leader.answers[1]

    assert told.key[1] == 0
    assert told.error is not None
    assert told.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_where_a_log_starts_is_told_when_the_time_is_up(leader: Leader) -> None:
    one = leader.partitions[0]
    leader.append(0)
    leader.fetch(asked(one))
    leader.fetch(asked(one, 1))
    leader.pass_time(MARKS_WAIT_S * 2)
    leader.fetch(asked(one, 1))
    one.delete_records(offset(1))
    leader.pass_time(0.6)

    assert [told.log_start for told in leader.answers[-1]] == [1]


async def test_an_answer_is_within_its_limit_and_the_rest_comes_next(leader: Leader) -> None:
    one, two = leader.partitions
    leader.append(0, b"x" * 500)
    leader.append(1, b"x" * 500)
    leader.fetch(asked(one), asked(two), max_bytes=100)
    assert [told.key[1] for told in leader.answers[0]] == [0], "one batch comes whole"
    leader.fetch(max_bytes=100)

    assert [told.key[1] for told in leader.answers[1]] == [1]


async def test_a_session_goes_on_by_id_life_and_number(leader: Leader) -> None:
    sessions, known = leader.sessions, leader.session

    assert sessions.next(ELSEWHERE, LIFE, known.id, 1) is known
    assert sessions.next(ELSEWHERE, LIFE, known.id, 1) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.next(ELSEWHERE, LIFE, known.id, 2) is known
    lost = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.next(ELSEWHERE, BrokerEpoch(6), known.id, 3) == lost
    assert sessions.next(HERE, LIFE, known.id, 3) == lost
    sessions.close(known)
    assert sessions.next(ELSEWHERE, LIFE, known.id, 3) == lost
    assert len(leader.partitions[0].replica_waiters) == 0


async def test_a_copy_that_was_given_up_counts_no_more_even_if_its_report_comes_late(
    leader: Leader,
) -> None:
    """The follower has yet to hear of both: it will delete what it reports, and copy anew."""
    one, _ = leader.partitions
    leader.append(0)
    paces = one.paces
    assert paces is not None
    alone = Leadership(HERE, LeaderEpoch(3), (HERE,), (), (HERE,), 2, revision=70)
    again = Leadership(HERE, LeaderEpoch(3), (HERE,), (), BOTH, 3, revision=71)
    one.follow_store(alone)
    one.follow_store(again)

    leader.session.acted_on = 69
    leader.fetch(asked(one, 1, flushed=1))
    ((told,),) = leader.answers
    assert told.error is not None
    assert told.error.code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert paces.end_of(ELSEWHERE) is None

    leader.session.acted_on = 70
    leader.fetch(asked(one, 0))
    leader.session.acted_on = 71
    leader.fetch(asked(one, 1, flushed=1))
    assert paces.end_of(ELSEWHERE) == 1


async def test_one_that_does_not_say_what_it_has_heard_is_believed(leader: Leader) -> None:
    one, _ = leader.partitions
    leader.append(0)
    one.follow_store(Leadership(HERE, LeaderEpoch(3), (HERE,), (), (HERE,), 2, revision=70))
    one.follow_store(Leadership(HERE, LeaderEpoch(3), (HERE,), (), BOTH, 3, revision=71))
    leader.fetch(asked(one, 1, flushed=1))

    assert one.paces is not None
    assert one.paces.end_of(ELSEWHERE) == 1


async def test_marks_of_a_busy_partition_go_with_its_own_data(leader: Leader) -> None:
    """Told with everybody's data, each would cost a question and an answer of its own."""
    one, two = leader.partitions
    leader.append(0)
    leader.fetch(asked(one), asked(two))
    leader.fetch(asked(one, 1), asked(two))
    leader.append(1)
    leader.turn()
    assert [told.key[1] for told in leader.answers[1]] == [1], "only what has data"

    leader.fetch(asked(two, 1))
    leader.append(0)
    leader.turn()

    assert [(told.key[1], told.high_watermark) for told in leader.answers[2]] == [(0, 1)]


async def test_marks_do_not_wait_for_ever_behind_the_data_of_others(leader: Leader) -> None:
    one, two = leader.partitions
    leader.append(0)
    leader.fetch(asked(one), asked(two))
    leader.fetch(asked(one, 1), asked(two))
    told = []
    for number in range(4):
        leader.append(1)
        leader.turn()
        told += [one.high_watermark for one in leader.answers[-1] if one.key[1] == 0]
        leader.pass_time(MARKS_WAIT_S / 2)
        leader.fetch(asked(two, number + 1))

    assert told == [1]


async def test_a_fetch_is_answered_when_its_own_time_is_up(leader: Leader) -> None:
    """The timer outlives fetches: it is the last one's wait that counts."""
    one, two = leader.partitions
    leader.fetch(asked(one), asked(two))
    leader.pass_time(MARKS_WAIT_S * 2)
    leader.fetch(asked(one), asked(two))
    leader.pass_time(0.4)
    leader.fetch()
    leader.pass_time(0.2)
    assert len(leader.answers) == 2, "it waits since the last fetch"
    leader.pass_time(0.4)

    assert len(leader.answers) == 3
    leader.session.fetch((), [], 500, 1 << 20, leader.answers.append)
    leader.session.fetch((), [], 50, 1 << 20, leader.answers.append)
    leader.pass_time(0.1)
    assert len(leader.answers) == 5, "a shorter wait is not kept by a longer one"


async def test_a_partition_that_is_held_anew_is_looked_up_anew(leader: Leader) -> None:
    one = leader.partitions[0]
    leader.fetch(asked(one))
    leader.replicas.remove(one)
    one.drop()
    leader.turn()
    anew = leader.world.partition(MEMORY, 5)
    anew.name, anew.topic_id = one.name, one.topic_id
    anew.follow_store(led())
    anew.paces = Paces(HERE, BOTH, 1_000, Millis(0))
    leader.replicas.add(anew)
    leader.fetch(asked(one))
    anew.append(batch_of(b"new"), 1, NOW)
    leader.turn()

    assert values(leader.answers[-1][0]) == 1
    assert len(one.replica_waiters) == 0


async def test_what_is_forgotten_of_a_follower_is_asked_for_again(leader: Leader) -> None:
    """It may have said so before the leader heard that it was out of the in-sync set."""
    one, _ = leader.partitions
    leader.append(0)
    leader.fetch(asked(one, 1, flushed=1))
    leader.pass_time(MARKS_WAIT_S * 2)
    leader.answers.clear()
    leader.fetch(asked(one, 1, flushed=1))
    one.follow_store(Leadership(HERE, LeaderEpoch(3), (HERE,), (), BOTH, 2, revision=70))
    leader.turn()

    ((told,),) = leader.answers
    assert told.error is not None
    assert told.error.code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert one.paces is not None
    assert one.paces.end_of(ELSEWHERE) is None
    leader.fetch(asked(one, 1, flushed=1))
    assert one.paces.end_of(ELSEWHERE) == 1
    leader.turn()
    assert len(leader.answers) == 1, "asked once"
