"""Who may take over a transactional id, and who is fenced by it."""

import pytest

from tests.transactions.coordinator import ORDERS, PAYMENTS, TIMEOUT_MS, Coordinator
from waystation.model.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadingError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
)
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.transactions.commands import Init, Initialised
from waystation.transactions.records import EPOCH_MAX, TransactionStored, TxnState
from waystation.transactions.settings import TransactionSettings

LAST_TOLD = ProducerEpoch(EPOCH_MAX - 1)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def at_epoch(coordinator: Coordinator, epoch: int) -> Initialised:
    """A producer that has come as far as that."""
    who = coordinator.init()
    state = coordinator.stored()._replace(epoch=ProducerEpoch(epoch))
    coordinator.log.append(state)
    coordinator.reload()
    return Initialised(who.producer_id, ProducerEpoch(epoch))


# --- taking over --------------------------------------------------------------------------------


def test_a_new_transactional_id_gets_a_fresh_producer_id(coordinator: Coordinator) -> None:
    first, second = coordinator.init("one"), coordinator.init("two")

    assert (first.epoch, second.epoch) == (0, 0)
    assert first.producer_id != second.producer_id
    assert coordinator.state("one") == "Empty"


def test_the_next_instance_fences_the_one_before(coordinator: Coordinator) -> None:
    first = coordinator.init()
    second = coordinator.init()

    assert second == (first.producer_id, first.epoch + 1)
    with pytest.raises(ProducerFencedError):
        coordinator.add(first)
    with pytest.raises(ProducerFencedError):
        coordinator.end(first, commit=False)
    coordinator.add(second)


def test_taking_over_aborts_what_was_under_way_and_waits_for_it(coordinator: Coordinator) -> None:
    first = coordinator.init()
    coordinator.add(first, ORDERS, PAYMENTS)
    second = coordinator.ask_init()

    assert second.waits
    (due,) = coordinator.due
    assert (due.commit, due.partitions) == (False, (ORDERS, PAYMENTS))
    assert (due.producer_id, due.epoch) == (first.producer_id, first.epoch + 1)

    coordinator.write_markers()

    assert second.answer == (first.producer_id, first.epoch + 2)


def test_a_fenced_producer_cannot_commit_what_was_aborted(coordinator: Coordinator) -> None:
    for bumps in (False, True):
        first = coordinator.init()
        coordinator.add(first, implicit=bumps)
        coordinator.ask_init()

        with pytest.raises(ProducerFencedError):
            coordinator.end(first, bumps=bumps)
        coordinator.write_markers()
        with pytest.raises(ProducerFencedError):
            coordinator.end(first, bumps=bumps)


def test_several_that_take_over_are_served_in_their_order(coordinator: Coordinator) -> None:
    first = coordinator.init()
    coordinator.add(first)
    waiting = [coordinator.ask_init() for _ in range(3)]
    coordinator.write_markers()

    assert [one.answer.epoch for one in waiting] == [2, 3, 4]


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_time_out_beyond_the_bounds_is_refused(coordinator: Coordinator, timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeoutError, match=r"transaction.max.timeout.ms"):
        coordinator.init(timeout_ms=timeout_ms)
    assert not coordinator.log


def test_the_longest_time_out_is_the_operators() -> None:
    coordinator = Coordinator(TransactionSettings(transaction_max_timeout_ms=5))
    coordinator.init(timeout_ms=5)

    with pytest.raises(InvalidTransactionTimeoutError):
        coordinator.init(timeout_ms=6)


def test_an_empty_transactional_id_is_refused(coordinator: Coordinator) -> None:
    who = coordinator.init()
    with pytest.raises(InvalidRequestError):
        coordinator.init("")
    with pytest.raises(InvalidRequestError):
        coordinator.add(who, name="")


# --- a producer that goes on after an error -----------------------------------------------------


def test_a_producer_may_bump_its_own_epoch(coordinator: Coordinator) -> None:
    who = coordinator.init()
    bumped = coordinator.ask_init(was=who).answer

    assert bumped == (who.producer_id, who.epoch + 1)


def test_a_repeated_bump_is_told_the_same_epoch(coordinator: Coordinator) -> None:
    who = coordinator.init()
    bumped = coordinator.ask_init(was=who).answer

    assert coordinator.ask_init(was=who).answer == bumped
    coordinator.reload()
    assert coordinator.ask_init(was=who).answer == bumped


def test_a_bump_by_one_who_was_replaced_is_fenced(coordinator: Coordinator) -> None:
    first = coordinator.init()
    coordinator.init()

    with pytest.raises(ProducerFencedError):
        coordinator.ask_init(was=first).answer  # noqa: B018 - the answer raises


def test_a_repeated_bump_is_fenced_once_somebody_took_over(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.ask_init(was=who)
    coordinator.init()

    with pytest.raises(ProducerFencedError):
        coordinator.ask_init(was=who).answer  # noqa: B018


def test_a_fenced_producer_aborts_nobodys_transaction(coordinator: Coordinator) -> None:
    """Kafka lets it end the newer one's transaction before it is told that it is fenced."""
    first = coordinator.init()
    second = coordinator.init()
    coordinator.add(second)

    with pytest.raises(ProducerFencedError):
        coordinator.ask_init(was=first).answer  # noqa: B018
    assert coordinator.state() == "Ongoing"
    coordinator.end(second)


def test_a_late_repeat_of_a_bump_ends_no_transaction_under_the_new_epoch(
    coordinator: Coordinator,
) -> None:
    who = coordinator.init()
    bumped = coordinator.ask_init(was=who).answer
    coordinator.add(bumped)

    with pytest.raises(ProducerFencedError):
        coordinator.ask_init(was=who).answer  # noqa: B018
    assert coordinator.state() == "Ongoing"


def test_a_bump_in_the_middle_of_a_transaction_aborts_it(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.add(who)
    bump = coordinator.ask_init(was=who)
    assert bump.waits

    coordinator.write_markers()

    assert bump.answer == (who.producer_id, who.epoch + 1)
    assert coordinator.ask_init(was=who).answer == bump.answer


def test_a_producer_of_an_id_that_expired_begins_anew(coordinator: Coordinator) -> None:
    was = ProducerId(77), ProducerEpoch(5)
    who = coordinator.ask_init(was=was).answer

    assert who.epoch == 0
    assert who.producer_id != 77


# --- epochs that are used up --------------------------------------------------------------------


def test_an_exhausted_epoch_is_followed_by_another_producer_id(coordinator: Coordinator) -> None:
    old = at_epoch(coordinator, LAST_TOLD)
    new = coordinator.init()

    assert new.epoch == 0
    assert new.producer_id != old.producer_id
    with pytest.raises(InvalidProducerIdMappingError):
        coordinator.add(old)


def test_a_repeated_rotation_is_told_the_same_producer_id(coordinator: Coordinator) -> None:
    old = at_epoch(coordinator, LAST_TOLD)
    new = coordinator.ask_init(was=old).answer

    assert new.producer_id != old.producer_id
    coordinator.reload()
    assert coordinator.ask_init(was=old).answer == new

    coordinator.init()
    with pytest.raises(ProducerFencedError):
        coordinator.ask_init(was=old).answer  # noqa: B018


def test_fencing_at_the_last_epoch_leads_to_another_producer_id(coordinator: Coordinator) -> None:
    old = at_epoch(coordinator, LAST_TOLD)
    coordinator.add(old)
    taking_over = coordinator.ask_init()
    (due,) = coordinator.write_markers()

    assert due.epoch == EPOCH_MAX
    assert taking_over.answer.epoch == 0
    assert taking_over.answer.producer_id != old.producer_id


def test_the_last_epoch_is_told_to_nobody(coordinator: Coordinator) -> None:
    """A time-out takes it for its markers; the producer must begin anew."""
    old = at_epoch(coordinator, LAST_TOLD)
    coordinator.write(old)
    coordinator.wait(TIMEOUT_MS + 1_000)
    coordinator.write_markers()

    with pytest.raises(ProducerFencedError):
        coordinator.end(old, commit=False, bumps=True)
    with pytest.raises(ProducerFencedError):
        coordinator.ask_init(was=old).answer  # noqa: B018
    assert coordinator.init().epoch == 0


def test_without_a_fresh_id_the_answer_is_to_ask_again(coordinator: Coordinator) -> None:
    assert coordinator.machine.needs_id("t", ProducerId(-1), ProducerEpoch(-1))
    asked = coordinator.ask(coordinator.machine.init, Init("t", TIMEOUT_MS))

    with pytest.raises(CoordinatorLoadingError):
        asked.answer  # noqa: B018
    assert not coordinator.log


def test_a_fresh_id_is_needed_for_the_new_and_the_exhausted_only(coordinator: Coordinator) -> None:
    nobody = ProducerId(-1), ProducerEpoch(-1)
    who = coordinator.init()

    assert not coordinator.machine.needs_id("t", *nobody)
    assert not coordinator.machine.needs_id("t", *who)

    old = at_epoch(coordinator, LAST_TOLD)

    assert coordinator.machine.needs_id("t", *nobody)
    assert coordinator.machine.needs_id("t", *old)


# --- partitions ---------------------------------------------------------------------------------


def test_the_first_partition_begins_the_transaction(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.wait(500)
    coordinator.add(who, PAYMENTS)
    began_at = coordinator.now
    coordinator.wait(500)
    coordinator.add(who, ORDERS)

    described = coordinator.machine.describe("t")
    assert described.state == "Ongoing"
    assert described.partitions == (ORDERS, PAYMENTS)
    assert described.started_at == began_at


def test_a_known_partition_costs_no_record(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.add(who, ORDERS, PAYMENTS)
    length = len(coordinator.log)
    coordinator.add(who, PAYMENTS)

    assert len(coordinator.log) == length


def test_nobody_else_adds_partitions(coordinator: Coordinator) -> None:
    who = coordinator.init()
    length = len(coordinator.log)

    with pytest.raises(InvalidProducerIdMappingError):
        coordinator.add((ProducerId(5), who.epoch))
    with pytest.raises(ProducerFencedError):
        coordinator.add((who.producer_id, ProducerEpoch(who.epoch + 1)))
    with pytest.raises(InvalidProducerIdMappingError):
        coordinator.add(who, name="unknown")
    assert len(coordinator.log) == length


def test_verifying_tells_which_partitions_are_part_of_it(coordinator: Coordinator) -> None:
    who = coordinator.init()
    assert coordinator.verify(who, ORDERS) == {ORDERS: TransactionAbortableError}

    coordinator.add(who, ORDERS)
    length = len(coordinator.log)

    assert coordinator.verify(who, ORDERS, PAYMENTS) == {
        ORDERS: None,
        PAYMENTS: TransactionAbortableError,
    }
    assert len(coordinator.log) == length
    with pytest.raises(ProducerFencedError):
        coordinator.verify((who.producer_id, ProducerEpoch(9)), ORDERS)


def test_a_write_of_an_ended_transaction_cannot_join_the_next(coordinator: Coordinator) -> None:
    """The point of KIP-890: the epoch ends with the transaction."""
    who = coordinator.init()
    coordinator.write(who, ORDERS)
    following = coordinator.end(who, bumps=True)
    coordinator.write_markers()
    coordinator.write(following, PAYMENTS)

    with pytest.raises(ProducerFencedError):
        coordinator.write(who, ORDERS)
    assert coordinator.machine.describe("t").partitions == (PAYMENTS,)


def test_a_prepared_transaction_takes_no_partition(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.write(who, ORDERS)
    coordinator.prepare(who)

    with pytest.raises(InvalidTxnStateError):
        coordinator.write(who, ORDERS)
    with pytest.raises(InvalidTxnStateError):
        coordinator.verify(who, ORDERS)
    with pytest.raises(ConcurrentTransactionsError):
        coordinator.init()


def test_a_state_that_kafka_left_is_taken_over(coordinator: Coordinator) -> None:
    """Kafka records an abort without partitions before it completes it."""
    who = coordinator.init()
    left: TransactionStored = coordinator.stored()._replace(
        state=TxnState.PREPARE_ABORT, epoch=ProducerEpoch(1)
    )
    coordinator.log.append(left)
    coordinator.reload()

    assert coordinator.state() == "CompleteAbort"
    assert not coordinator.due
    assert coordinator.init() == (who.producer_id, 2)
