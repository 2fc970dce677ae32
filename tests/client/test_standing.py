"""What a transactional producer may do, whatever happens to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.client.delivery import Identity
from waystation.client.errors import BrokerError, error_of
from waystation.client.standing import Phase, Standing
from waystation.model.errors import (
    ErrorCode,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
    WaystationError,
)
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition

ME = Identity(ProducerId(7), ProducerEpoch(0))
NEXT = Identity(ProducerId(7), ProducerEpoch(1))
HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 1)
REFUSED = error_of(ErrorCode.INVALID_RECORD, "partition orders-0")


def begun(*, implicit: bool = False) -> Standing:
    standing = Standing("tx", timeout_ms=60_000)
    standing.initialised(ME)
    standing.begin(0.0, implicit=implicit)
    return standing


def test_a_partition_takes_nothing_before_it_was_added() -> None:
    standing = begun()

    assert not standing.takes(HERE)
    assert list(standing.unadded) == [HERE]

    standing.added([HERE])

    assert standing.takes(HERE)
    assert not standing.takes(THERE)


def test_where_writing_adds_nothing_is_waited_for() -> None:
    standing = begun(implicit=True)

    assert standing.is_empty
    assert standing.takes(HERE)
    assert not standing.is_empty


def test_the_next_transaction_knows_nothing_of_the_last() -> None:
    standing = begun()
    standing.takes(THERE)
    standing.added([HERE])
    standing.ended(NEXT)
    standing.begin(1.0, implicit=False)

    assert standing.is_empty
    assert standing.identity == NEXT
    assert not standing.takes(HERE)


def test_the_first_reason_of_a_failure_is_kept() -> None:
    standing = begun(implicit=True)

    assert standing.failed(REFUSED, 1.0)
    assert not standing.failed(error_of(ErrorCode.CORRUPT_MESSAGE, "partition orders-1"), 2.0)
    assert standing.cause is REFUSED
    with pytest.raises(TransactionAbortableError, match="orders-0") as caught:
        standing.check_open()
    assert caught.value.__cause__ is REFUSED


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_who_is_fenced_is_told_why_by_the_clock(code: ErrorCode) -> None:
    early, late = begun(), begun()
    early.failed(BrokerError(code, "fenced"), 1.0)
    late.failed(BrokerError(code, "fenced"), 61.0)

    with pytest.raises(ProducerFencedError, match="taken over"):
        early.check_alive()
    with pytest.raises(ProducerFencedError, match="61000 ms"):
        late.check_alive()


def test_a_prepared_transaction_keeps_the_next_from_beginning() -> None:
    standing = begun()
    standing.closing()
    standing.prepared()

    assert standing.is_decided
    with pytest.raises(InvalidTxnStateError, match="prepared"):
        standing.begin(1.0, implicit=False)


_ERRORS = st.sampled_from([REFUSED, BrokerError(ErrorCode.PRODUCER_FENCED, "fenced")])
_EVENTS = st.one_of(
    st.sampled_from(["begin", "closing", "ending", "prepared", "ended", "added"]),
    st.tuples(st.just("failed"), _ERRORS),
)


@given(st.lists(_EVENTS, max_size=30), st.booleans())
def test_nothing_leaves_after_a_failure_and_nobody_returns_from_the_dead(
    events: list[str | tuple[str, WaystationError]], implicit: bool
) -> None:
    standing = Standing("tx", timeout_ms=60_000)
    standing.initialised(ME)
    failed = False
    for event in events:
        dead = standing.phase is Phase.DEAD
        try:
            match event:
                case "begin":
                    standing.begin(0.0, implicit=implicit)
                    failed = False
                case "added":
                    standing.added([HERE])
                case "failed", error if isinstance(error, WaystationError):
                    standing.failed(error, 0.0)
                    failed = True
                case "closing":
                    standing.closing()
                # Who is dead asks the coordinator nothing, and so hears nothing.
                case "ending" if not dead:
                    standing.ending()
                case "prepared" if not dead:
                    standing.prepared()
                case "ended" if not dead:
                    standing.ended(NEXT)
        except WaystationError:
            pass

        assert not (dead and standing.phase is not Phase.DEAD)
        if failed and standing.phase in (Phase.FAILED, Phase.DEAD):
            assert not standing.takes(HERE)
