"""Names of transactions, and the transactional ids behind them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.client.delivery import Identity
from waystation.gateway.problems import ProblemError
from waystation.gateway.transaction_ids import TransactionId, new_transactional_id
from waystation.gateway.transaction_slots import KEPT_MS, Slots
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.offsets import Millis

SOON, LATER = Millis(1_000), Millis(1_000 + KEPT_MS)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**63 - 1))
def test_names_are_read_back(producer: int, epoch: int, at: int) -> None:
    identity = Identity(ProducerId(producer), ProducerEpoch(epoch))
    id_ = TransactionId(new_transactional_id(), identity, Millis(at))

    assert TransactionId.parse(str(id_)) == id_
    assert str(id_).replace("-", "").replace("_", "").isalnum()


@given(st.text(max_size=60) | st.text("abcXYZ019-_=", min_size=40, max_size=50))
def test_other_texts_are_no_names(text: str) -> None:
    found = TransactionId.parse(text)

    assert found is None or str(found) == text


def test_a_name_is_known_by_nobody_who_was_not_told() -> None:
    assert len({new_transactional_id() for _ in range(1_000)}) == 1_000
    assert len(new_transactional_id()) > 32


def test_only_so_many_are_open() -> None:
    slots = Slots(3)
    names = [slots.take(Millis(0), SOON) for _ in range(3)]

    assert len(set(names)) == 3
    with pytest.raises(ProblemError) as refused:
        slots.take(Millis(0), SOON)
    assert refused.value.problem.status == 503

    slots.ended(names[1], Millis(1))
    assert slots.take(Millis(2), SOON) == names[1]


def test_one_that_was_free_for_longest_is_used_first_and_not_too_soon() -> None:
    slots = Slots(4)
    first, second = (slots.take(Millis(0), LATER) for _ in range(2))
    slots.ended(second, Millis(1))
    slots.ended(first, Millis(2))

    third = slots.take(Millis(3), LATER)
    assert third not in (first, second)
    assert slots.take(Millis(1 + KEPT_MS), LATER) == second
    assert len(slots) == 3


def test_one_whose_time_is_over_is_used_again_whoever_ended_it() -> None:
    slots = Slots(1)
    name = slots.take(Millis(0), SOON)

    assert slots.is_full
    assert slots.take(Millis(SOON + 10_000), LATER) == name
