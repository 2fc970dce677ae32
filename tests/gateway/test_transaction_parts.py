"""Names of transactions, and the transactional ids behind them."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.client.admin import Admin
from waystation.client.delivery import Identity
from waystation.client.joined import JoinedTransaction
from waystation.client.transport import connect_tcp
from waystation.gateway.clients import Clients
from waystation.gateway.problems import ProblemError
from waystation.gateway.routes import Call
from waystation.gateway.transaction_bodies import (
    NewMessages,
    NewTopicMessage,
    NewTransaction,
    TransactionParams,
)
from waystation.gateway.transaction_ids import TransactionId, new_transactional_id
from waystation.gateway.transaction_slots import KEPT_MS, Slots
from waystation.gateway.transactions import Transactions
from waystation.model.errors import InvalidTxnStateError
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


async def test_who_was_refused_when_a_part_was_stored_has_no_transaction_left(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that says that it has ended may be wrong; then a part of it must not count."""
    stored = JoinedTransaction.add

    async def refused_after_all(joined: JoinedTransaction, records: Any) -> Sequence[Any]:
        await stored(joined, records)
        raise InvalidTxnStateError("it has ended, as far as I know")

    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 1)
    clients = Clients(bootstrap, connect_tcp, waiting=1, message_bytes=1 << 20)
    transactions = Transactions()
    try:
        begun = await transactions.begin_transaction(Call(clients, None, NewTransaction(), {}))
        params = TransactionParams(begun.transaction)
        monkeypatch.setattr(JoinedTransaction, "add", refused_after_all)
        messages = NewMessages([NewTopicMessage(topic=topic, value_base64=b"part")])
        with pytest.raises(ProblemError, match="aborted"):
            await transactions.add_messages(Call(clients, params, messages, {}))
        found = await transactions.describe_transaction(Call(clients, params, None, {}))
    finally:
        await clients.close()
    assert found.state.startswith("abort")
