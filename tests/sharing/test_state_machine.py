"""The share coordinator: what it remembers, whom it fences, and that order does not matter."""

from itertools import permutations
from typing import Any
from uuid import UUID

import pytest

from waystation.model.errors import (
    FencedLeaderEpochError,
    FencedStateEpochError,
    InvalidRequestError,
)
from waystation.model.ids import LeaderEpoch, TopicId
from waystation.model.offsets import NO_OFFSET, Millis, Offset
from waystation.sharing.lineage import Lineage
from waystation.sharing.persister import Delete, Initialize, Read, Summarize, Write
from waystation.sharing.settings import ShareSettings
from waystation.sharing.state_machine import ShareStates
from waystation.sharing.state_records import (
    NO_NOTES,
    Notes,
    QueueId,
    SnapshotStored,
    StateForgotten,
    StateRecord,
    UpdateForgotten,
    UpdateStored,
)
from waystation.sharing.states import ACKNOWLEDGED, ARCHIVED, ARCHIVING, AVAILABLE, StateBatch

QUEUE = QueueId("g", TopicId(UUID(int=1)), 0)
NOW = Millis(0)


class Coordinator:
    """A machine, its log, and the last answer."""

    def __init__(self, updates: int = 100) -> None:
        self.settings = ShareSettings(
            share_coordinator_snapshot_update_records_per_snapshot=updates
        )
        self.machine = ShareStates(lambda: self.settings)
        self.log: list[StateRecord] = []

    def ask(self, command: Any) -> Any:
        answers: list[Any] = []
        ask = getattr(self.machine, type(command).__name__.lower())
        outcome = ask(NOW, command, answers.append)
        self.log.extend(outcome.records)
        for record in outcome.records:
            self.machine.apply(record)
        for to, answer in outcome.replies:
            to(answer)
        (answer,) = answers
        return answer

    def begun(self) -> "Coordinator":
        self.ask(Initialize(QUEUE, 1, Offset(0)))
        return self

    def state(self) -> Any:
        return self.ask(Read(QUEUE, LeaderEpoch(1_000)))

    def replayed(self) -> "Coordinator":
        """Another one that has read the log, of which compaction left the newest of each key."""
        other = Coordinator()
        newest: dict[object, int] = {}
        for number, record in enumerate(self.log):
            newest[record.queue, getattr(record, "slot", None)] = number
        for number in sorted(newest.values()):
            other.machine.apply(self.log[number])
        return other


def batch(first: int, end: int, state: int, deliveries: int = 1) -> StateBatch:
    return StateBatch(Offset(first), Offset(end), state, deliveries)


def write(leader: int, start: int, *batches: StateBatch, state_epoch: int = 1) -> Write:
    return Write(QUEUE, state_epoch, LeaderEpoch(leader), Offset(start), batches)


def test_what_a_leader_wrote_the_next_one_reads() -> None:
    states = Coordinator().begun()
    states.ask(Read(QUEUE, LeaderEpoch(1)))
    states.ask(write(1, 5, batch(7, 9, ACKNOWLEDGED), batch(10, 12, AVAILABLE, 2)))

    assert states.ask(Read(QUEUE, LeaderEpoch(2))) == (
        1,
        5,
        (batch(7, 9, ACKNOWLEDGED), batch(10, 12, AVAILABLE, 2)),
        NO_NOTES,
    )
    assert states.replayed().state() == states.state()


def test_reading_fences_the_leader_before() -> None:
    states = Coordinator().begun()
    states.ask(Read(QUEUE, LeaderEpoch(3)))

    assert isinstance(states.ask(write(2, 5)), FencedLeaderEpochError)
    assert isinstance(states.ask(Read(QUEUE, LeaderEpoch(2))), FencedLeaderEpochError)
    assert isinstance(states.replayed().ask(write(2, 5)), FencedLeaderEpochError)
    assert states.ask(write(3, 5)) is None


def test_a_group_that_begins_anew_fences_what_was() -> None:
    states = Coordinator().begun()
    states.ask(write(1, 5, batch(7, 9, ACKNOWLEDGED)))
    states.ask(Initialize(QUEUE, 2, Offset(3)))

    assert isinstance(states.ask(write(1, 9)), FencedStateEpochError)
    assert isinstance(states.ask(write(1, 9, state_epoch=3)), FencedStateEpochError)
    assert isinstance(states.ask(Initialize(QUEUE, 1, Offset(0))), FencedStateEpochError)
    assert states.state() == (2, 3, (), NO_NOTES)


def test_beginning_twice_takes_nothing_back() -> None:
    states = Coordinator().begun()
    states.ask(write(1, 5))
    states.ask(Initialize(QUEUE, 1, Offset(0)))

    assert states.state().start == 5


def test_the_order_of_writes_does_not_matter() -> None:
    writes = [
        write(1, 2, batch(4, 8, AVAILABLE, 1)),
        write(1, 3, batch(4, 6, AVAILABLE, 2), batch(6, 8, ACKNOWLEDGED)),
        write(1, 4, batch(4, 5, ARCHIVING, 2), batch(5, 6, AVAILABLE, 3)),
        write(1, 4, batch(4, 5, ARCHIVED, 2)),
    ]
    outcomes = set()
    for order in permutations([*writes, writes[0]]):
        states = Coordinator().begun()
        for one in order:
            states.ask(one)
        outcomes.add((states.state(), states.replayed().state()))

    assert len(outcomes) == 1
    ((state, replayed),) = outcomes
    assert state == replayed
    assert state.start == 4
    assert state.batches == (
        batch(4, 5, ARCHIVED, 2),
        batch(5, 6, AVAILABLE, 3),
        batch(6, 8, ACKNOWLEDGED),
    )


def test_large_states_are_stored_by_their_changes() -> None:
    states = Coordinator(updates=5).begun()
    settled = [batch(offset, offset + 1, ACKNOWLEDGED) for offset in range(1, 200, 2)]
    states.ask(write(1, 0, *settled))
    for offset in range(0, 40, 4):
        states.ask(write(1, offset, batch(offset, offset + 1, ACKNOWLEDGED)))

    kinds = [type(record) for record in states.log]
    assert kinds.count(UpdateStored) > kinds.count(SnapshotStored)
    assert max(r.slot for r in states.log if isinstance(r, UpdateStored)) < 5
    assert states.replayed().state() == states.state()


def test_small_states_are_stored_whole() -> None:
    states = Coordinator().begun()
    for start in range(50):
        states.ask(write(1, start, batch(start + 2, start + 3, ACKNOWLEDGED)))

    assert {type(record) for record in states.log} == {SnapshotStored}


def test_a_queue_that_is_forgotten_leaves_nothing_behind() -> None:
    states = Coordinator(updates=5).begun()
    settled = [batch(offset, offset + 1, ACKNOWLEDGED) for offset in range(1, 200, 2)]
    for _ in range(4):
        states.ask(write(1, 0, *settled))
    assert states.ask(Delete(QUEUE)) is None
    assert states.ask(Delete(QUEUE)) is None

    assert isinstance(states.ask(write(1, 0)), InvalidRequestError)
    assert isinstance(states.state(), InvalidRequestError)
    left = states.replayed()
    assert left.machine.queues() == []
    kinds = [type(record) for record in states.log]
    assert kinds.count(StateForgotten) == 1
    assert kinds.count(UpdateForgotten) == 4
    states.begun()
    assert states.state() == states.replayed().state() == (1, 0, (), NO_NOTES)


def test_a_summary_says_where_the_queue_stands_and_fences_nobody() -> None:
    states = Coordinator().begun()
    states.ask(write(4, 5, batch(7, 9, ACKNOWLEDGED), batch(10, 11, ARCHIVED), batch(12, 13, 0)))

    assert states.ask(Summarize(QUEUE)) == (1, 4, 5, 3)
    assert states.ask(write(4, 6)) is None


def test_a_queue_may_leave_it_to_its_leader_where_it_begins() -> None:
    states = Coordinator()
    states.ask(Initialize(QUEUE, 1))

    assert states.ask(Read(QUEUE, LeaderEpoch(1))).start == NO_OFFSET
    states.ask(write(1, 700, batch(702, 703, ACKNOWLEDGED)))
    assert states.state() == states.replayed().state()
    assert states.state()[:3] == (1, 700, (batch(702, 703, 2),))


# --- after an election that lost messages -------------------------------------------------------


def log(end: int, *starts: tuple[int, int]) -> Lineage:
    return Lineage(Offset(end), tuple((LeaderEpoch(one), Offset(at)) for one, at in starts))


def test_what_is_known_of_lost_messages_is_forgotten() -> None:
    """The new leader's log ends at 50, and began to grow again by the time it loads."""
    states = Coordinator().begun()
    states.ask(Read(QUEUE, LeaderEpoch(3), log(100, (3, 0))))
    states.ask(write(3, 20, batch(40, 60, ACKNOWLEDGED), batch(70, 80, AVAILABLE)))

    read = states.ask(Read(QUEUE, LeaderEpoch(4), log(120, (3, 0), (4, 50))))

    assert read[1:3] == (20, (batch(40, 50, ACKNOWLEDGED),))
    assert states.replayed().state() == states.state()
    assert states.state() == read


def test_a_queue_that_was_further_than_its_log_begins_where_the_log_was_cut() -> None:
    states = Coordinator().begun()
    states.ask(Read(QUEUE, LeaderEpoch(3), log(100, (3, 0))))
    states.ask(write(3, 90, batch(95, 96, ARCHIVED)))

    assert states.ask(Read(QUEUE, LeaderEpoch(5), log(60, (3, 0))))[1:3] == (60, ())


def test_what_is_written_after_the_loss_stays_however_often_its_leader_reads() -> None:
    states = Coordinator().begun()
    states.ask(Read(QUEUE, LeaderEpoch(3), log(100, (3, 0))))
    states.ask(write(3, 90))
    loading = Read(QUEUE, LeaderEpoch(4), log(60, (3, 0)))
    states.ask(loading)
    states.ask(write(4, 70, batch(72, 73, ACKNOWLEDGED)))

    assert states.ask(loading)[1:3] == (70, (batch(72, 73, ACKNOWLEDGED),))


def test_a_loss_that_another_leader_slept_through_is_found_all_the_same() -> None:
    """The leader of epoch 4 wrote over what was lost and never loaded the queue."""
    states = Coordinator().begun()
    states.ask(Read(QUEUE, LeaderEpoch(3), log(100, (3, 0))))
    states.ask(write(3, 90))

    read = states.ask(Read(QUEUE, LeaderEpoch(6), log(200, (3, 0), (4, 60), (6, 180))))

    assert read.start == 60


def test_an_election_that_loses_nothing_changes_nothing() -> None:
    states = Coordinator().begun()
    states.ask(Read(QUEUE, LeaderEpoch(3), log(100, (3, 0))))
    states.ask(write(3, 90, batch(95, 100, ACKNOWLEDGED)))
    before = states.machine._queues[QUEUE].batches()

    assert states.ask(Read(QUEUE, LeaderEpoch(4), log(130, (3, 0), (4, 100))))[1:3] == (90, before)


def test_where_an_administrator_lets_a_group_begin_is_no_leaders_word() -> None:
    """Nobody has loaded the queue since: it may begin behind what its last leader ever saw."""
    states = Coordinator().begun()
    states.ask(Read(QUEUE, LeaderEpoch(3), log(50, (3, 0))))
    states.ask(Initialize(QUEUE, 2, Offset(90)))
    clean = log(120, (3, 0), (4, 50))

    assert states.replayed().ask(Read(QUEUE, LeaderEpoch(4), clean)).start == 90
    assert states.ask(Read(QUEUE, LeaderEpoch(4), log(80, (3, 0)))).start == 80


def test_queues_over_topics_that_are_gone_are_forgotten() -> None:
    states = Coordinator().begun()
    outcome = states.machine.topics_gone(NOW, lambda topic: topic != QUEUE.topic_id)

    assert outcome.records == [StateForgotten(QUEUE)]
    assert states.machine.topics_gone(NOW, lambda _: True).records == []


@pytest.mark.parametrize("bad", [batch(3, 3, 2), batch(0, 1, 1), batch(-1, 1, 2), batch(0, 1, 9)])
def test_nonsense_is_refused(bad: StateBatch) -> None:
    assert isinstance(Coordinator().begun().ask(write(1, 0, bad)), InvalidRequestError)


@pytest.mark.parametrize("size", [1, 200])
def test_the_latest_notes_are_kept_in_small_states_and_large_ones(size: int) -> None:
    states = Coordinator(updates=5).begun()
    settled = [batch(offset, offset + 1, ACKNOWLEDGED) for offset in range(1, size + 1, 2)]
    states.ask(write(1, 0, *settled)._replace(notes=Notes(2, b"later")))
    states.ask(write(1, 0)._replace(notes=Notes(1, b"earlier")))

    for _ in range(12):
        assert states.state().notes == states.replayed().state().notes == (2, b"later")
        states.ask(write(1_000, 0, batch(0, 1, AVAILABLE)))


def test_what_is_on_its_way_is_remembered_when_a_group_begins_anew() -> None:
    states = Coordinator().begun()
    states.ask(write(1, 5)._replace(notes=Notes(1, b"a batch")))
    states.ask(Initialize(QUEUE, 2, Offset(3)))

    assert states.state() == (2, 3, (), Notes(1, b"a batch"))
