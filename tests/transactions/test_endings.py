"""How transactions end, in the classic flow and in KIP-890's, and what a repeat is told."""

import pytest

from tests.transactions.coordinator import (
    COORDINATOR_EPOCH,
    OFFSETS,
    ORDERS,
    PAYMENTS,
    TIMEOUT_MS,
    Coordinator,
)
from tests.transactions.test_producers import LAST_TOLD, at_epoch
from waystation.model.errors import (
    CoordinatorLoadingError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.offsets import Millis
from waystation.transactions.commands import End, Ended, Init, MarkersDue
from waystation.transactions.records import EPOCH_MAX


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


BOTH = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


def words(commit: bool) -> tuple[str, str]:
    return ("PrepareCommit", "CompleteCommit") if commit else ("PrepareAbort", "CompleteAbort")


# --- the classic flow ---------------------------------------------------------------------------


@BOTH
def test_a_classic_transaction_ends_under_its_own_epoch(
    coordinator: Coordinator, commit: bool
) -> None:
    who = coordinator.init()
    coordinator.add(who, ORDERS, OFFSETS)
    ended = coordinator.end(who, commit)

    assert ended == Ended(*who)
    assert coordinator.state() == words(commit)[0]
    assert coordinator.write_markers() == [
        MarkersDue("t", *who, COORDINATOR_EPOCH, commit, (OFFSETS, ORDERS))
    ]
    assert coordinator.state() == words(commit)[1]
    assert coordinator.machine.describe("t").partitions == ()


@BOTH
def test_a_classic_repeat_is_told_the_same(coordinator: Coordinator, commit: bool) -> None:
    who = coordinator.init()
    coordinator.add(who)
    coordinator.end(who, commit)

    assert coordinator.end(who, commit) == Ended(*who)  # its markers are still to be written
    coordinator.write_markers()
    assert coordinator.end(who, commit) == Ended(*who)
    coordinator.reload()
    assert coordinator.end(who, commit) == Ended(*who)
    assert not coordinator.due


@BOTH
def test_a_classic_transaction_does_not_end_both_ways(
    coordinator: Coordinator, commit: bool
) -> None:
    who = coordinator.init()
    coordinator.add(who)
    coordinator.end(who, commit)

    with pytest.raises(InvalidTxnStateError):
        coordinator.end(who, not commit)
    coordinator.write_markers()
    with pytest.raises(InvalidTxnStateError):
        coordinator.end(who, not commit)


@BOTH
def test_nothing_begun_is_nothing_to_end_in_the_classic_flow(
    coordinator: Coordinator, commit: bool
) -> None:
    who = coordinator.init()

    with pytest.raises(InvalidTxnStateError):
        coordinator.end(who, commit)


# --- KIP-890 ------------------------------------------------------------------------------------


@BOTH
def test_a_transaction_ends_with_its_epoch(coordinator: Coordinator, commit: bool) -> None:
    who = coordinator.init()
    coordinator.write(who, ORDERS)
    following = coordinator.end(who, commit, bumps=True)

    assert following == (who.producer_id, who.epoch + 1)
    (due,) = coordinator.write_markers()
    assert (due.producer_id, due.epoch) == following
    assert coordinator.state() == words(commit)[1]


@BOTH
def test_a_repeat_is_told_the_same(coordinator: Coordinator, commit: bool) -> None:
    who = coordinator.init()
    coordinator.write(who)
    following = coordinator.end(who, commit, bumps=True)

    assert coordinator.end(who, commit, bumps=True) == following
    coordinator.write_markers()
    assert coordinator.end(who, commit, bumps=True) == following
    coordinator.reload()
    assert coordinator.end(who, commit, bumps=True) == following


@BOTH
def test_a_transaction_does_not_end_both_ways(coordinator: Coordinator, commit: bool) -> None:
    who = coordinator.init()
    coordinator.write(who)
    coordinator.end(who, commit, bumps=True)

    with pytest.raises(InvalidTxnStateError):
        coordinator.end(who, not commit, bumps=True)
    coordinator.write_markers()
    with pytest.raises(InvalidTxnStateError):
        coordinator.end(who, not commit, bumps=True)


def test_a_late_repeat_does_not_end_the_next_transaction(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.write(who)
    following = coordinator.end(who, bumps=True)
    coordinator.write_markers()
    coordinator.write(following)

    for commit in (True, False):
        with pytest.raises(ProducerFencedError):
            coordinator.end(who, commit, bumps=True)
    assert coordinator.state() == "Ongoing"


def test_aborting_nothing_still_ends_the_epoch(coordinator: Coordinator) -> None:
    """A producer does not know whether its only write arrived: after this it never will."""
    who = coordinator.init()
    following = coordinator.end(who, commit=False, bumps=True)

    assert following == (who.producer_id, who.epoch + 1)
    assert coordinator.end(who, commit=False, bumps=True) == following
    assert coordinator.end(following, commit=False, bumps=True).epoch == who.epoch + 2
    assert not coordinator.due
    assert coordinator.state() == "CompleteAbort"


def test_nothing_cannot_be_committed(coordinator: Coordinator) -> None:
    who = coordinator.init()
    with pytest.raises(InvalidTxnStateError):
        coordinator.end(who, bumps=True)

    coordinator.write(who)
    following = coordinator.end(who, bumps=True)
    coordinator.write_markers()
    with pytest.raises(InvalidTxnStateError):
        coordinator.end(following, bumps=True)


def test_the_last_epoch_ends_with_another_producer_id(coordinator: Coordinator) -> None:
    old = at_epoch(coordinator, LAST_TOLD)
    coordinator.write(old)
    following = coordinator.end(old, bumps=True)

    assert following.epoch == 0
    assert following.producer_id != old.producer_id
    next_write = coordinator.ask_add(following, implicit=True)
    assert next_write.waits  # it is known who comes next, before the markers are written
    assert coordinator.end(old, bumps=True) == following

    (due,) = coordinator.write_markers()

    assert (due.producer_id, due.epoch) == (old.producer_id, EPOCH_MAX)
    assert next_write.answer.errors == {ORDERS: None}


def test_a_repeat_after_the_last_epoch_is_told_the_new_producer_id(
    coordinator: Coordinator,
) -> None:
    old = at_epoch(coordinator, LAST_TOLD)
    coordinator.write(old)
    following = coordinator.end(old, bumps=True)
    coordinator.write_markers()
    coordinator.reload()

    assert coordinator.end(old, bumps=True) == following
    with pytest.raises(InvalidTxnStateError):
        coordinator.end(old, commit=False, bumps=True)


def test_the_last_epoch_does_not_end_without_a_fresh_id(coordinator: Coordinator) -> None:
    old = at_epoch(coordinator, LAST_TOLD)
    coordinator.write(old)
    asked = coordinator.ask(coordinator.machine.end, End("t", *old, True, True))

    with pytest.raises(CoordinatorLoadingError):
        asked.answer  # noqa: B018 - the answer raises
    assert coordinator.state() == "Ongoing"


# --- strangers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bumps", [False, True], ids=["classic", "kip-890"])
def test_nobody_else_ends_a_transaction(coordinator: Coordinator, bumps: bool) -> None:
    who = coordinator.init()
    coordinator.write(who)

    with pytest.raises(InvalidProducerIdMappingError):
        coordinator.end((ProducerId(3), who.epoch), bumps=bumps)
    with pytest.raises(ProducerFencedError):
        coordinator.end((who.producer_id, ProducerEpoch(who.epoch + 1)), bumps=bumps)
    with pytest.raises(InvalidProducerIdMappingError):
        coordinator.ask_end(who, bumps=bumps, name="unknown").answer  # noqa: B018
    assert coordinator.state() == "Ongoing"


# --- markers ------------------------------------------------------------------------------------


def test_a_transaction_is_complete_once_every_partition_has_its_marker(
    coordinator: Coordinator,
) -> None:
    who = coordinator.init()
    coordinator.add(who, ORDERS, PAYMENTS)
    coordinator.end(who)
    (due,) = coordinator.due
    coordinator.written(due, [ORDERS])
    coordinator.written(due, [ORDERS])
    coordinator.written(due, [OFFSETS])

    assert coordinator.state() == "PrepareCommit"

    coordinator.written(due, [PAYMENTS])

    assert coordinator.state() == "CompleteCommit"

    coordinator.written(due)

    assert coordinator.state() == "CompleteCommit"


def test_markers_of_one_transaction_do_not_count_for_the_next(coordinator: Coordinator) -> None:
    """In the classic flow both orders say the same; only one of them is meant."""
    who = coordinator.init()
    orders = []
    for _ in range(2):
        coordinator.add(who, ORDERS)
        coordinator.end(who)
        orders += coordinator.due
        coordinator.due.clear()
        if len(orders) == 1:
            coordinator.written(orders[0])
    first, second = orders
    assert first == second

    coordinator.written(first)

    assert coordinator.state() == "PrepareCommit"

    coordinator.written(second)

    assert coordinator.state() == "CompleteCommit"


def test_a_new_coordinator_asks_for_all_markers_again(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.add(who, ORDERS, PAYMENTS)
    coordinator.end(who)
    (before,) = coordinator.due
    coordinator.written(before, [ORDERS])
    coordinator.reload()

    (due,) = coordinator.due
    assert due.partitions == (ORDERS, PAYMENTS)
    coordinator.written(before)  # who was asked by the coordinator before
    assert coordinator.state() == "PrepareCommit"
    coordinator.write_markers()
    assert coordinator.state() == "CompleteCommit"


# --- time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("reloads", [False, True])
def test_a_transaction_that_takes_too_long_is_aborted(
    coordinator: Coordinator, reloads: bool
) -> None:
    who = coordinator.init()
    coordinator.wait(TIMEOUT_MS * 3)  # before it begins no time is counted
    coordinator.add(who, ORDERS)
    coordinator.wait(TIMEOUT_MS - 1)
    coordinator.add(who, PAYMENTS)
    if reloads:
        coordinator.reload()
    assert not coordinator.due

    coordinator.wait(101)

    (due,) = coordinator.write_markers()
    assert due == MarkersDue(
        "t", who.producer_id, ProducerEpoch(1), COORDINATOR_EPOCH, False, (ORDERS, PAYMENTS), True
    )
    with pytest.raises(ProducerFencedError):
        coordinator.end(who)
    with pytest.raises(ProducerFencedError):
        coordinator.add(who)


def test_a_producer_that_was_too_slow_aborts_and_goes_on(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.write(who)
    coordinator.wait(TIMEOUT_MS + 1_000)
    coordinator.write_markers()

    with pytest.raises(InvalidTxnStateError):
        coordinator.end(who, bumps=True)
    following = coordinator.end(who, commit=False, bumps=True)
    assert following == (who.producer_id, who.epoch + 1)
    coordinator.write(following)


def test_a_classic_producer_that_was_too_slow_bumps_its_epoch_and_goes_on(
    coordinator: Coordinator,
) -> None:
    who = coordinator.init()
    coordinator.add(who)
    coordinator.wait(TIMEOUT_MS + 1_000)
    coordinator.write_markers()

    bumped = coordinator.ask_init(was=who).answer
    assert bumped == (who.producer_id, who.epoch + 1)
    coordinator.add(bumped)


def test_one_that_is_ended_in_time_is_not_aborted_later(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.add(who)
    coordinator.end(who)
    coordinator.wait(TIMEOUT_MS * 2)

    assert [due.commit for due in coordinator.write_markers()] == [True]
    coordinator.wait(TIMEOUT_MS * 2)
    assert coordinator.state() == "CompleteCommit"


def test_the_next_transaction_has_its_own_time(coordinator: Coordinator) -> None:
    who = coordinator.init()
    for _ in range(3):
        coordinator.add(who)
        coordinator.wait(TIMEOUT_MS - 1)
        coordinator.end(who)
        coordinator.write_markers()
    assert coordinator.state() == "CompleteCommit"


def test_many_that_are_overdue_are_ended_a_few_at_a_time(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waystation.transactions.machine._ABORTS_MAX", 10)
    for number in range(35):
        coordinator.add(coordinator.init(str(number)), name=str(number))
    coordinator.now = Millis(coordinator.now + TIMEOUT_MS)
    aborted = []
    while (at := coordinator.machine.next_deadline()) is not None and at <= coordinator.now:
        coordinator.wait(0, ticks=1)
        aborted.append(len(coordinator.due))

    assert aborted == [10, 20, 30, 35]


def test_a_producer_that_asks_for_none_has_no_time_out(coordinator: Coordinator) -> None:
    init = Init("t", 5, fresh=ProducerId(1), two_phase=True)
    who = coordinator.ask(coordinator.machine.init, init).answer
    coordinator.add(who)
    coordinator.wait(60 * 86_400_000)

    assert coordinator.state() == "Ongoing"


# --- clocks that disagree -----------------------------------------------------------------------


def test_a_clock_that_was_ahead_makes_no_transaction_last_longer(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.add(who, ORDERS)
    coordinator.now = Millis(coordinator.now - 100 * TIMEOUT_MS)
    coordinator.reload()
    coordinator.wait(TIMEOUT_MS // 2)
    coordinator.add(who, PAYMENTS)
    assert coordinator.state() == "Ongoing"

    coordinator.wait(2 * TIMEOUT_MS)
    assert coordinator.state() == words(commit=False)[0]
