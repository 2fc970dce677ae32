"""The lives of queues catch what they are for: each bug planted here makes one of them fail."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.simulation.share_life import Leader, Life
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import Millis, Offset
from waystation.sharing import queue_state, state_machine
from waystation.sharing.backlog import Backlog, Cell
from waystation.sharing.changes import Changes
from waystation.sharing.leader import QueueLeader
from waystation.sharing.lineage import Lineage
from waystation.sharing.locks import Locks
from waystation.sharing.ordered_partition import OrderedPartition
from waystation.sharing.persister import Read, Write
from waystation.sharing.queue_state import QueueState
from waystation.sharing.share_partition import SharePartition
from waystation.sharing.state_machine import ShareStates
from waystation.sharing.states import ACQUIRED, ARCHIVED, AVAILABLE

SEEDS = 40
Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


# --- at the leader ------------------------------------------------------------------------------


def answers_before_it_is_stored(patch: Patch) -> None:
    patch.setattr(SharePartition, "stored", property(lambda queue: queue.version))


def lets_anybody_acknowledge(patch: Patch) -> None:
    def meant(queue: Any, member_id: str, first: Offset, end: Offset) -> Any:
        spans = queue._backlog.ranges.spans(first, end)
        return [span for span in spans if span[2].state == ACQUIRED]

    patch.setattr(SharePartition, "_meant", meant)


def forgets_to_count_a_lock_that_is_over(patch: Patch) -> None:
    honest = SharePartition._failed

    def failed(queue: Any, now: Millis, first: Offset, end: Offset, cell: Cell, **how: Any) -> None:
        honest(queue, now, first, end, cell, **how)
        for begin, until, after in queue._backlog.ranges.spans(first, end):
            if after.state == AVAILABLE:
                fewer = after._replace(deliveries=max(after.deliveries - 1, 0))
                queue._backlog.ranges.paint(begin, until, fewer)

    patch.setattr(SharePartition, "_failed", failed)


def delivers_more_often_than_allowed(patch: Patch) -> None:
    def may_go_on(policy: Any, deliveries: int) -> bool:
        return deliveries <= policy.max_deliveries

    patch.setattr("waystation.sharing.retry.RetryPolicy.may_go_on", may_go_on)


def stores_what_is_out_as_settled(patch: Patch) -> None:
    honest = Backlog.stored_form

    def stored_form(backlog: Backlog, first: Offset, end: Offset) -> Any:
        out = {begin for begin, _, cell in backlog.ranges.spans(first, end) if cell.state == 1}
        for batch in honest(backlog, first, end):
            yield batch._replace(state=ARCHIVED) if batch.first in out else batch

    patch.setattr(Backlog, "stored_form", stored_form)


def forgets_what_a_lost_write_said(patch: Patch) -> None:
    def lost(changes: Changes) -> None:
        changes._taken = None

    patch.setattr(Changes, "lost", lost)


def moves_the_start_past_what_is_out(patch: Patch) -> None:
    honest = Backlog.advance

    def advance(backlog: Backlog) -> bool:
        for _, end, cell in backlog.ranges.spans(backlog.ranges.start, backlog.ranges.end)[:1]:
            if cell.state == AVAILABLE and cell.deliveries == 1:
                backlog.count(cell, backlog.ranges.start - end)
                backlog.ranges.forget(end)
        return honest(backlog)

    patch.setattr(Backlog, "advance", advance)


def never_ends_a_lock(patch: Patch) -> None:
    patch.setattr(Locks, "due", lambda *_: [])


def gives_out_more_than_may_be_out(patch: Patch) -> None:
    patch.setattr(SharePartition, "room", lambda *_: 1_000)


def names_dead_letters_before_it_is_stored(patch: Patch) -> None:
    def dead_letters(leader: Any, limit: int) -> Any:
        return leader.queue.dead_letters(limit)

    patch.setattr(QueueLeader, "dead_letters", dead_letters)


# --- at the share coordinator -------------------------------------------------------------------


def does_not_fence_leaders(patch: Patch) -> None:
    patch.setattr(state_machine, "_check_leader", lambda *_: None)


def takes_a_late_write_for_the_newest(patch: Patch) -> None:
    patch.setattr(queue_state, "further", lambda _, other: other)


def lets_the_next_leader_begin_where_the_last_one_ended(patch: Patch) -> None:
    honest = ShareStates.write

    def write(states: ShareStates, now: Millis, command: Write, to: Any) -> Any:
        ends = [batch.end for batch in command.batches]
        return honest(states, now, command._replace(start=max([command.start, *ends])), to)

    patch.setattr(ShareStates, "write", write)


# --- after an election that lost messages -------------------------------------------------------


def believes_what_it_knows_of_lost_messages(patch: Patch) -> None:
    patch.setattr(QueueState, "lost_from", lambda *_: None)


def looks_only_at_where_the_log_ends(patch: Patch) -> None:
    """Others may stand there by the time the next leader loads."""

    def lost_from(state: QueueState, log: Lineage) -> Offset | None:
        return log.log_end if state._ranges.end > log.log_end else None

    patch.setattr(QueueState, "lost_from", lost_from)


def forgets_again_when_it_is_asked_again(patch: Patch) -> None:
    honest = ShareStates.read

    def read(states: ShareStates, now: Millis, command: Read, to: Any) -> Any:
        known = states._queues[command.queue]
        if known.leader_epoch == command.leader_epoch:
            known.leader_epoch = LeaderEpoch(known.leader_epoch - 1)
        return honest(states, now, command, to)

    patch.setattr(ShareStates, "read", read)


# --- order --------------------------------------------------------------------------------------


def lets_two_of_a_key_out(patch: Patch) -> None:
    honest = OrderedPartition.__init__

    def init(queue: Any, *args: Any) -> None:
        honest(queue, *args)
        queue._by_key = False

    patch.setattr(OrderedPartition, "__init__", init)


def goes_on_with_a_key_while_its_oldest_waits(patch: Patch) -> None:
    honest = OrderedPartition._depart

    def depart(queue: Any, offset: Offset) -> None:
        honest(queue, offset)
        line = queue._places[offset][0]
        if line is not None and queue.start % 2:
            line.blocked -= 1
            queue._promote(line)
            line.blocked += 1

    patch.setattr(OrderedPartition, "_depart", depart)


def does_not_show_what_was_loaded(patch: Patch) -> None:
    def admits_from(queue: Any) -> Offset | None:
        queue._shown_end = max(queue._shown_end, queue.end)
        return Offset(queue._shown_end)

    patch.setattr(OrderedPartition, "admits_from", admits_from)


PLAIN: Sequence[Plant] = (
    answers_before_it_is_stored,
    lets_anybody_acknowledge,
    forgets_to_count_a_lock_that_is_over,
    delivers_more_often_than_allowed,
    stores_what_is_out_as_settled,
    forgets_what_a_lost_write_said,
    moves_the_start_past_what_is_out,
    never_ends_a_lock,
    gives_out_more_than_may_be_out,
    names_dead_letters_before_it_is_stored,
    does_not_fence_leaders,
    takes_a_late_write_for_the_newest,
    lets_the_next_leader_begin_where_the_last_one_ended,
)
LOSING: Sequence[Plant] = (
    believes_what_it_knows_of_lost_messages,
    looks_only_at_where_the_log_ends,
    forgets_again_when_it_is_asked_again,
)
BY_KEY: Sequence[Plant] = (
    lets_two_of_a_key_out,
    goes_on_with_a_key_while_its_oldest_waits,
    does_not_show_what_was_loaded,
)


def some_life_fails(**kind: Any) -> bool:
    """Whether one of the lives notices."""
    for seed in range(SEEDS):
        try:
            Life(seed, **kind).run()
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("plant", PLAIN, ids=lambda plant: plant.__name__)
def test_a_bug_is_noticed(plant: Plant, monkeypatch: Patch) -> None:
    plant(monkeypatch)

    assert some_life_fails()


@pytest.mark.parametrize("plant", BY_KEY, ids=lambda plant: plant.__name__)
def test_a_bug_in_the_order_is_noticed(plant: Plant, monkeypatch: Patch) -> None:
    plant(monkeypatch)

    assert some_life_fails(by_key=True)


@pytest.mark.parametrize("plant", LOSING, ids=lambda plant: plant.__name__)
def test_a_bug_in_forgetting_is_noticed(plant: Plant, monkeypatch: Patch) -> None:
    plant(monkeypatch)

    assert some_life_fails(loses=True)


def test_leaders_are_played_by_the_product() -> None:
    """The bugs above are planted in what a broker runs, not in the test's own classes."""
    assert {"take_change", "change_written", "change_lost"} <= set(vars(SharePartition))
    assert not hasattr(Leader, "take_change")
