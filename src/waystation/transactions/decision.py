"""What a request leads to, and the checks that all requests of a producer share."""

from typing import NamedTuple

from waystation.model.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    ProducerFencedError,
)
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.transactions.records import EPOCH_MAX, OutcomeStored, TransactionStored


class Decision(NamedTuple):
    """What is answered, what the transactional id becomes, and what is remembered beside it."""

    answer: object = None
    becomes: TransactionStored | None = None
    outcome: OutcomeStored | None = None
    waits: bool = False
    """Asked again once the markers that are due are written, instead of being answered."""


WAITS = Decision(waits=True)


def check_id(transactional_id: str) -> None:
    """Refuse a text that is no transactional id."""
    if not transactional_id:
        raise InvalidRequestError("the transactional id is empty: name one, or none at all")


def known(state: TransactionStored | None, transactional_id: str) -> TransactionStored:
    """The state; refuses an id that was never initialised, or has expired."""
    check_id(transactional_id)
    if state is None:
        raise InvalidProducerIdMappingError(
            f"nobody is known as {transactional_id!r}: call InitProducerId first"
        )
    return state


def check_producer(state: TransactionStored, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
    """Refuse anybody but the producer that has the transactional id now."""
    if producer_id != state.producer_id:
        raise InvalidProducerIdMappingError(
            f"{state.transactional_id!r} belongs to producer {state.producer_id}, "
            f"not to {producer_id}"
        )
    if epoch != state.epoch or epoch == EPOCH_MAX:
        raise fenced(state, epoch)


def too_early(transactional_id: str) -> ConcurrentTransactionsError:
    """What is said to one who cannot wait, or not any longer."""
    return ConcurrentTransactionsError(
        f"the last transaction of {transactional_id!r} is decided, and not all of its "
        "partitions have been told yet: ask again"
    )


def fenced(state: TransactionStored, epoch: ProducerEpoch) -> ProducerFencedError:
    """The refusal of an epoch that is not the present one."""
    return ProducerFencedError(
        f"{state.transactional_id!r} is at epoch {state.epoch} of producer {state.producer_id}, "
        f"the request says {epoch}: a newer instance or a time-out has fenced this one"
    )
