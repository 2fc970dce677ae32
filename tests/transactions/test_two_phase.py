"""Prepared transactions wait for their holder, whatever happens, and their end is remembered."""

import pytest

from tests.transactions.coordinator import ORDERS, PAYMENTS, TIMEOUT_MS, Coordinator
from tests.transactions.test_producers import LAST_TOLD, at_epoch
from waystation.model.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.transactions.commands import Initialised, Prepared
from waystation.transactions.records import EPOCH_MAX
from waystation.transactions.settings import TransactionSettings

DAY_MS = 86_400_000
BOTH = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def prepared(coordinator: Coordinator) -> Initialised:
    """A producer whose transaction is prepared."""
    who = coordinator.init()
    coordinator.write(who, ORDERS, PAYMENTS)
    assert coordinator.prepare(who) == Prepared()
    return who


def go_on(coordinator: Coordinator, times: int = 3) -> None:
    """Let the transactional id have other transactions."""
    for _ in range(times):
        who = coordinator.init()
        coordinator.write(who)
        coordinator.end(who, bumps=True)
        coordinator.write_markers()


# --- preparing ----------------------------------------------------------------------------------


def test_preparing_twice_is_preparing_once(coordinator: Coordinator) -> None:
    who = prepared(coordinator)
    length = len(coordinator.log)

    assert coordinator.prepare(who) == Prepared()
    assert len(coordinator.log) == length
    assert coordinator.state() == "Prepared"


def test_there_must_be_something_to_prepare(coordinator: Coordinator) -> None:
    who = coordinator.init()
    with pytest.raises(InvalidTxnStateError):
        coordinator.prepare(who)

    coordinator.write(who)
    following = coordinator.end(who, bumps=True)
    with pytest.raises(ProducerFencedError):
        coordinator.prepare(who)
    with pytest.raises(InvalidTxnStateError):
        coordinator.prepare(following)


def test_nobody_else_prepares(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.write(who)

    with pytest.raises(ProducerFencedError):
        coordinator.prepare((who.producer_id, ProducerEpoch(who.epoch + 1)))
    with pytest.raises(InvalidProducerIdMappingError):
        coordinator.prepare((ProducerId(5), who.epoch))
    with pytest.raises(InvalidProducerIdMappingError):
        coordinator.prepare(who, name="unknown")
    assert coordinator.state() == "Ongoing"


def test_a_classic_transaction_cannot_be_prepared(coordinator: Coordinator) -> None:
    """The one after it has the same epoch: a late request would prepare that."""
    who = coordinator.init()
    coordinator.add(who)

    with pytest.raises(InvalidTxnStateError, match="Produce v12"):
        coordinator.prepare(who)


# --- waiting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reloads", [False, True])
def test_a_prepared_transaction_waits_for_ever(coordinator: Coordinator, reloads: bool) -> None:
    who = prepared(coordinator)
    if reloads:
        coordinator.reload()
    coordinator.wait(40 * DAY_MS)

    assert coordinator.state() == "Prepared"
    assert not coordinator.due
    assert coordinator.outcome(who).state == "prepared"


def test_nobody_takes_over_from_a_prepared_transaction(coordinator: Coordinator) -> None:
    who = prepared(coordinator)

    with pytest.raises(ConcurrentTransactionsError, match="prepared"):
        coordinator.init()
    with pytest.raises(ConcurrentTransactionsError):
        coordinator.ask_init(was=who).answer  # noqa: B018 - the answer raises
    with pytest.raises(ProducerFencedError):
        coordinator.end((who.producer_id, ProducerEpoch(who.epoch + 1)), bumps=True)
    with pytest.raises(InvalidProducerIdMappingError):
        coordinator.end((ProducerId(5), who.epoch), bumps=True)
    assert coordinator.outcome(who).state == "prepared"


# --- ending -------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("bumps", [False, True], ids=["EndTxn v4", "EndTxn v5"])
def test_its_holder_ends_it_from_anywhere(
    coordinator: Coordinator, commit: bool, bumps: bool
) -> None:
    who = prepared(coordinator)
    coordinator.wait(DAY_MS)
    coordinator.reload()
    following = coordinator.end(who, commit, bumps=bumps)

    assert following == (who.producer_id, who.epoch + 1)
    assert coordinator.outcome(who).state == ("committing" if commit else "aborting")
    (due,) = coordinator.write_markers()
    assert (due.commit, due.partitions) == (commit, (ORDERS, PAYMENTS))
    assert coordinator.outcome(who).state == ("committed" if commit else "aborted")


@BOTH
@pytest.mark.parametrize("bumps", [False, True], ids=["EndTxn v4", "EndTxn v5"])
def test_a_repeated_end_is_told_the_same_for_days(
    coordinator: Coordinator, commit: bool, bumps: bool
) -> None:
    who = prepared(coordinator)
    following = coordinator.end(who, commit, bumps=bumps)
    assert coordinator.end(who, commit, bumps=bumps) == following
    coordinator.write_markers()
    assert coordinator.end(who, commit, bumps=bumps) == following

    go_on(coordinator)
    coordinator.reload()
    coordinator.wait(6 * DAY_MS)

    assert coordinator.end(who, commit, bumps=bumps) == (-1, -1)
    with pytest.raises(InvalidTxnStateError):
        coordinator.end(who, not commit, bumps=bumps)
    with pytest.raises(InvalidTxnStateError):
        coordinator.prepare(who)
    assert coordinator.outcome(who).state == ("committed" if commit else "aborted")


def test_the_epoch_of_a_prepared_transaction_is_never_used_again(coordinator: Coordinator) -> None:
    """Also where EndTxn of the classic flow ended it: its name must stay its own."""
    who = prepared(coordinator)
    coordinator.end(who, bumps=False)
    coordinator.write_markers()

    with pytest.raises(ProducerFencedError):
        coordinator.write(who)
    assert coordinator.init().epoch > who.epoch


def test_the_last_epoch_can_be_prepared_too(coordinator: Coordinator) -> None:
    for bumps in (False, True):
        who = at_epoch(coordinator, LAST_TOLD)
        coordinator.write(who)
        coordinator.prepare(who)
        following = coordinator.end(who, bumps=bumps)
        (due,) = coordinator.write_markers()

        assert due.epoch == EPOCH_MAX
        assert (following.epoch == 0) == bumps
        assert coordinator.outcome(who).state == "committed"
        coordinator.end(who, bumps=bumps)
        assert coordinator.init().producer_id != who.producer_id


def test_outcomes_are_forgotten_in_the_end(coordinator: Coordinator) -> None:
    who = prepared(coordinator)
    coordinator.end(who, bumps=True)
    coordinator.write_markers()
    go_on(coordinator)
    coordinator.wait(7 * DAY_MS + 2 * 3_600_000)

    assert coordinator.outcome(who) == ("unknown", -1)
    coordinator.reload()
    assert coordinator.outcome(who) == ("unknown", -1)
    with pytest.raises(InvalidProducerIdMappingError):
        coordinator.end(who, bumps=True)  # the transactional id has expired as well


def test_an_outcome_outlives_its_transactional_id() -> None:
    coordinator = Coordinator(TransactionSettings(transactional_id_expiration_ms=3_600_000))
    who = prepared(coordinator)
    coordinator.end(who, bumps=True)
    coordinator.write_markers()
    coordinator.wait(2 * DAY_MS)
    assert not coordinator.machine.list(coordinator.now)

    assert coordinator.outcome(who).state == "committed"
    assert coordinator.end(who, bumps=True) == (-1, -1)


# --- the operator -------------------------------------------------------------------------------


@pytest.mark.parametrize("reloads", [False, True])
def test_the_operators_limit_ends_it_and_says_so(reloads: bool) -> None:
    coordinator = Coordinator(TransactionSettings(transaction_prepared_max_ms=DAY_MS))
    who = prepared(coordinator)
    coordinator.wait(DAY_MS - 1)
    if reloads:
        coordinator.reload()
    assert coordinator.state() == "Prepared"

    coordinator.wait(101)

    (due,) = coordinator.write_markers()
    assert (due.commit, due.epoch) == (False, who.epoch + 1)
    assert coordinator.outcome(who).state == "aborted_by_limit"
    with pytest.raises(InvalidTxnStateError, match="aborted_by_limit"):
        coordinator.end(who, bumps=True)
    assert coordinator.end(who, commit=False, bumps=True) == (who.producer_id, who.epoch + 1)
    go_on(coordinator)
    assert coordinator.outcome(who).state == "aborted_by_limit"


def test_a_limit_that_is_set_later_counts_for_those_who_wait() -> None:
    coordinator = Coordinator()
    who = prepared(coordinator)
    coordinator.wait(DAY_MS)
    coordinator.settings = TransactionSettings(transaction_prepared_max_ms=TIMEOUT_MS)
    coordinator.wait(200)

    assert coordinator.outcome(who).state == "aborting"


def test_the_operator_aborts_a_prepared_transaction(coordinator: Coordinator) -> None:
    who = prepared(coordinator)
    coordinator.abort()
    coordinator.write_markers()

    assert coordinator.outcome(who).state == "aborted"
    with pytest.raises(InvalidTxnStateError):
        coordinator.end(who, bumps=True)


# --- looking up what was not prepared -----------------------------------------------------------


def test_other_transactions_are_known_until_the_next_one(coordinator: Coordinator) -> None:
    who = coordinator.init()
    assert coordinator.outcome(who).state == "unknown"
    coordinator.write(who)
    assert coordinator.outcome(who) == ("ongoing", coordinator.now)
    following = coordinator.end(who, bumps=True)
    assert coordinator.outcome(who).state == "committing"
    assert coordinator.outcome((following.producer_id, following.epoch)).state == "unknown"
    coordinator.write_markers()
    assert coordinator.outcome(who).state == "committed"
    coordinator.write((following.producer_id, following.epoch))
    assert coordinator.outcome(who).state == "unknown"
    assert coordinator.outcome(who, name="unknown").state == "unknown"


def test_a_classic_transaction_is_looked_up_by_the_epoch_it_keeps(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.add(who)
    coordinator.end(who, commit=False)
    assert coordinator.outcome(who).state == "aborting"
    coordinator.write_markers()
    assert coordinator.outcome(who).state == "aborted"
