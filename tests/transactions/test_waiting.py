"""Requests wait for markers that are being written, and not for ever."""

import pytest

from tests.transactions.coordinator import ORDERS, PAYMENTS, Coordinator
from waystation.model.errors import ConcurrentTransactionsError, ProducerFencedError
from waystation.model.ids import ProducerEpoch
from waystation.transactions.commands import Initialised
from waystation.transactions.waiting import WAIT_MS, WAITING_MAX


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def ending(coordinator: Coordinator) -> Initialised:
    """A classic producer whose last transaction lacks its markers."""
    who = coordinator.init()
    coordinator.add(who, ORDERS)
    coordinator.end(who)
    return who


def test_the_next_transaction_begins_when_the_markers_are_written(coordinator: Coordinator) -> None:
    who = ending(coordinator)
    adding = coordinator.ask_add(who, PAYMENTS)
    assert adding.waits
    coordinator.wait(WAIT_MS - 1)
    assert adding.waits

    coordinator.write_markers()

    assert adding.answer.errors == {PAYMENTS: None}
    described = coordinator.machine.describe("t")
    assert (described.state, described.partitions) == ("Ongoing", (PAYMENTS,))
    assert described.started_at == coordinator.now


def test_those_who_wait_too_long_are_told_to_ask_again(coordinator: Coordinator) -> None:
    who = ending(coordinator)
    adding = coordinator.ask_add(who, PAYMENTS)
    coordinator.wait(WAIT_MS)

    with pytest.raises(ConcurrentTransactionsError):
        adding.answer  # noqa: B018 - the answer raises

    coordinator.write_markers()

    assert coordinator.state() == "CompleteCommit"  # nothing was begun for one who has left
    coordinator.add(who, PAYMENTS)


def test_each_waits_for_its_own_time(coordinator: Coordinator) -> None:
    who = ending(coordinator)
    first = coordinator.ask_add(who)
    coordinator.wait(500)
    second = coordinator.ask_init()
    coordinator.wait(WAIT_MS - 500)

    assert not first.waits
    assert second.waits

    coordinator.wait(500)

    assert not second.waits


def test_requests_that_cannot_succeed_do_not_wait(coordinator: Coordinator) -> None:
    who = ending(coordinator)

    with pytest.raises(ProducerFencedError):
        coordinator.add((who.producer_id, ProducerEpoch(who.epoch + 1)))
    with pytest.raises(ProducerFencedError):
        coordinator.ask_init(was=(who.producer_id, ProducerEpoch(7))).answer  # noqa: B018


def test_an_abort_of_nothing_waits_for_the_transaction_before(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.write(who)
    following = coordinator.end(who, bumps=True)
    aborting = coordinator.ask_end(following, commit=False, bumps=True)
    assert aborting.waits

    coordinator.write_markers()

    assert aborting.answer == (who.producer_id, following.epoch + 1)


def test_verifying_waits_too(coordinator: Coordinator) -> None:
    who = ending(coordinator)
    verifying = coordinator.ask_add(who, ORDERS, verify_only=True)
    coordinator.write_markers()

    assert verifying.answer.errors[ORDERS] is not None


def test_one_who_takes_over_ends_what_was_begun_before_it(coordinator: Coordinator) -> None:
    """The order in which they came decides: the write joins, then it is aborted."""
    who = ending(coordinator)
    adding = coordinator.ask_add(who, PAYMENTS)
    taking_over = coordinator.ask_init()
    late = coordinator.ask_add(who, ORDERS)
    coordinator.write_markers()

    assert adding.answer.errors == {PAYMENTS: None}
    assert taking_over.waits
    with pytest.raises(ProducerFencedError):
        late.answer  # noqa: B018
    (due,) = coordinator.write_markers()
    assert (due.commit, due.partitions) == (False, (PAYMENTS,))
    assert taking_over.answer.epoch == who.epoch + 2


def test_what_waits_again_waits_for_the_rest_of_its_time(coordinator: Coordinator) -> None:
    who = ending(coordinator)
    coordinator.ask_add(who, PAYMENTS)
    coordinator.wait(1_500)
    taking_over = coordinator.ask_init()
    coordinator.wait(400)
    coordinator.write_markers()
    assert taking_over.waits
    coordinator.wait(1_599)
    assert taking_over.waits
    coordinator.wait(1)

    with pytest.raises(ConcurrentTransactionsError):
        taking_over.answer  # noqa: B018


def test_only_so_many_wait_for_one_id(coordinator: Coordinator) -> None:
    ending(coordinator)
    waiting = [coordinator.ask_init() for _ in range(WAITING_MAX)]
    one_more = coordinator.ask_init()

    with pytest.raises(ConcurrentTransactionsError):
        one_more.answer  # noqa: B018
    coordinator.write_markers()
    assert [one.answer.epoch for one in waiting] == list(range(1, WAITING_MAX + 1))
    assert coordinator.machine.abandon() == []


def test_those_who_wait_are_known_when_the_coordinator_goes(coordinator: Coordinator) -> None:
    who = ending(coordinator)
    waiting = [coordinator.ask_add(who, PAYMENTS), coordinator.ask_init()]

    assert coordinator.machine.abandon() == waiting
