"""What operators see and do, and what is forgotten in the end."""

import pytest

from tests.transactions.coordinator import ORDERS, PAYMENTS, START, TIMEOUT_MS, Coordinator
from waystation.model.errors import ProducerFencedError, TransactionalIdNotFoundError
from waystation.model.ids import ProducerId, TopicPartition
from waystation.model.offsets import NO_TIMESTAMP, Millis
from waystation.transactions import book
from waystation.transactions.commands import TransactionDescription, TransactionListing
from waystation.transactions.settings import TransactionSettings

DAY_MS = 86_400_000


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def test_a_transaction_is_described(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.wait(5)
    coordinator.write(who, PAYMENTS)
    coordinator.wait(5)
    coordinator.write(who, ORDERS)

    began_at, added_at = Millis(START + 5), Millis(START + 10)
    assert coordinator.machine.describe("t") == TransactionDescription(
        "t", *who, "Ongoing", TIMEOUT_MS, began_at, added_at, NO_TIMESTAMP, (ORDERS, PAYMENTS)
    )
    coordinator.prepare(who)
    described = coordinator.machine.describe("t")
    assert (described.state, described.prepared_at) == ("Prepared", START + 10)
    with pytest.raises(TransactionalIdNotFoundError):
        coordinator.machine.describe("unknown")


def test_transactions_are_listed_by_state_producer_and_age(coordinator: Coordinator) -> None:
    idle, old, young = (coordinator.init(name) for name in ("idle", "old", "young"))
    coordinator.add(old, name="old")
    coordinator.wait(1_000)
    coordinator.add(young, name="young")

    def listed(*filters: object, **more: object) -> list[str]:
        found = coordinator.machine.list(coordinator.now, *filters, **more)  # type: ignore[arg-type]
        return sorted(one.transactional_id for one in found)

    assert listed() == ["idle", "old", "young"]
    assert listed(["Ongoing"]) == ["old", "young"]
    assert listed(["Empty", "Dead"]) == ["idle"]
    assert listed((), [young.producer_id, ProducerId(9)]) == ["young"]
    assert listed(longer_than_ms=0) == ["old"]
    assert listed(longer_than_ms=1_000) == []
    assert listed(["Ongoing"], [idle.producer_id]) == []
    assert TransactionListing("idle", idle.producer_id, "Empty") in coordinator.machine.list(
        coordinator.now
    )


def test_the_operator_aborts_what_is_under_way(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.write(who)
    coordinator.abort()

    assert coordinator.state() == "PrepareAbort"
    with pytest.raises(ProducerFencedError):
        coordinator.write(who)
    assert [due.commit for due in coordinator.write_markers()] == [False]
    assert coordinator.end(who, commit=False, bumps=True).epoch == who.epoch + 1


def test_an_operator_who_is_late_aborts_nothing_else(coordinator: Coordinator) -> None:
    who = coordinator.init()
    coordinator.write(who)
    following = coordinator.end(who, bumps=True)
    coordinator.write_markers()
    coordinator.write((following.producer_id, following.epoch))

    with pytest.raises(ProducerFencedError):
        coordinator.end(who, commit=False, bumps=True)
    assert coordinator.state() == "Ongoing"


def test_it_is_known_which_open_transactions_will_end(coordinator: Coordinator) -> None:
    who = coordinator.init()
    other = coordinator.init("other")

    def owns(partition: TopicPartition) -> bool:
        return coordinator.machine.owns(who.producer_id, partition)

    assert not owns(ORDERS)

    coordinator.add(who, ORDERS)
    assert owns(ORDERS)
    assert not owns(PAYMENTS)
    assert not coordinator.machine.owns(other.producer_id, ORDERS)
    assert not coordinator.machine.owns(ProducerId(5), ORDERS)

    coordinator.end(who)
    coordinator.reload()
    assert owns(ORDERS)  # its marker may not be written yet
    coordinator.write_markers()
    assert not owns(ORDERS)


# --- what is forgotten --------------------------------------------------------------------------


def test_ids_that_nobody_uses_expire(coordinator: Coordinator) -> None:
    coordinator.init("idle")
    who = coordinator.init("used")
    coordinator.wait(6 * DAY_MS)
    coordinator.add(who, name="used")
    coordinator.ask_end(who, name="used")
    coordinator.write_markers()
    coordinator.wait(DAY_MS + 2 * 3_600_000)

    assert [one.transactional_id for one in coordinator.machine.list(coordinator.now)] == ["used"]
    coordinator.reload()
    assert [one.transactional_id for one in coordinator.machine.list(coordinator.now)] == ["used"]
    assert coordinator.init("idle").epoch == 0


def test_what_is_under_way_does_not_expire() -> None:
    short = TransactionSettings(transactional_id_expiration_ms=1, transaction_max_timeout_ms=DAY_MS)
    coordinator = Coordinator(short)
    who = coordinator.init(timeout_ms=DAY_MS)
    coordinator.add(who)
    coordinator.wait(DAY_MS // 2)
    assert coordinator.state() == "Ongoing"

    coordinator.end(who)
    coordinator.wait(DAY_MS)
    assert coordinator.state() == "PrepareCommit"

    coordinator.write_markers()
    coordinator.wait(DAY_MS)
    assert not coordinator.machine.list(coordinator.now)
    assert not coordinator.machine.owns(who.producer_id, ORDERS)


def test_many_expire_a_few_at_a_time(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "SWEEP_MAX", 10)
    monkeypatch.setattr("waystation.transactions.machine.SWEEP_MAX", 10)
    for number in range(35):
        coordinator.init(str(number))
    coordinator.wait(7 * DAY_MS - 1)
    left = [35]
    while left[-1]:
        at = coordinator.machine.next_deadline()
        assert at is not None
        coordinator.wait(at - coordinator.now)
        left.append(len(coordinator.machine.list(coordinator.now)))

    assert left == [35, 25, 15, 5, 0]
