"""What a transactional id becomes, step by step; every function gives the next state.

    EMPTY -> ONGOING (-> prepared) -> PREPARE_COMMIT -> COMPLETE_COMMIT
                                   -> PREPARE_ABORT  -> COMPLETE_ABORT

A complete one begins the next transaction, or is empty again after InitProducerId.  Two rules
hold for epochs, on which everything else rests:

1. the pair of producer id and epoch that a producer may write under never comes back;
2. ``EPOCH_MAX`` is in markers only: after it comes another producer id.

Who may ask for which step is decided in ``producers.py`` and ``endings.py``.
"""

from collections.abc import Iterable

from waystation.model.ids import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from waystation.model.offsets import NO_TIMESTAMP, Millis
from waystation.transactions.records import EPOCH_MAX, TransactionStored, TxnState

WRITTEN_BY_WRITES = 2
"""The client version of those whose writes add their partitions themselves."""

_EXHAUSTED = EPOCH_MAX - 1
_FIRST = ProducerEpoch(0)
_ENDING = (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
_ENDED = (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)


def is_ending(state: TransactionStored) -> bool:
    """Whether it is decided how the transaction ends, and markers are still to be written."""
    return state.state in _ENDING


def is_idle(state: TransactionStored) -> bool:
    """Whether no transaction is under way at all."""
    return state.state is TxnState.EMPTY or state.state in _ENDED


def is_committed(state: TransactionStored) -> bool:
    """Whether the last transaction was, or is being, committed."""
    return state.state in (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT)


def is_exhausted(epoch: ProducerEpoch) -> bool:
    """Whether nobody can be told a newer epoch of the same producer id."""
    return epoch >= _EXHAUSTED


# --- taking over --------------------------------------------------------------------------------


def new(
    transactional_id: str, producer_id: ProducerId, timeout_ms: int, now: Millis
) -> TransactionStored:
    """A transactional id that nobody has used."""
    return TransactionStored(transactional_id, producer_id, _FIRST, timeout_ms, TxnState.EMPTY, now)


def bumped(
    state: TransactionStored, timeout_ms: int, now: Millis, *, by_itself: bool
) -> TransactionStored:
    """The next epoch: for the producer ``by_itself``, or for another that takes over."""
    return TransactionStored(
        state.transactional_id,
        state.producer_id,
        ProducerEpoch(state.epoch + 1),
        timeout_ms,
        TxnState.EMPTY,
        now,
        last_epoch=state.epoch if by_itself else NO_PRODUCER_EPOCH,
    )


def rotated(
    state: TransactionStored, fresh: ProducerId, timeout_ms: int, now: Millis, *, by_itself: bool
) -> TransactionStored:
    """Another producer id, since the epochs of the one so far are used up."""
    return new(state.transactional_id, fresh, timeout_ms, now)._replace(
        last_epoch=state.epoch if by_itself else NO_PRODUCER_EPOCH,
        previous_producer_id=state.producer_id,
    )


def emptied(state: TransactionStored, timeout_ms: int, now: Millis) -> TransactionStored:
    """The same producer, who asks again to be told its epoch."""
    return state._replace(
        timeout_ms=timeout_ms,
        state=TxnState.EMPTY,
        updated_at=now,
        started_at=NO_TIMESTAMP,
        client_version=0,
    )


# --- a transaction ------------------------------------------------------------------------------


def joined(
    state: TransactionStored, partitions: Iterable[TopicPartition], now: Millis, *, implicit: bool
) -> TransactionStored:
    """Partitions are part of the transaction, which begins with the first of them."""
    is_first = state.state is not TxnState.ONGOING
    known = () if is_first else state.partitions
    return state._replace(
        state=TxnState.ONGOING,
        updated_at=now,
        partitions=tuple(sorted({*known, *partitions})),
        started_at=now if is_first else min(state.started_at, now),
        last_epoch=NO_PRODUCER_EPOCH,  # who writes under the new epoch was told it
        previous_producer_id=NO_PRODUCER,
        client_version=WRITTEN_BY_WRITES if implicit else 0,
    )


def prepared(state: TransactionStored, now: Millis) -> TransactionStored:
    """From now on it waits for its end, however long."""
    return state._replace(updated_at=now, prepared_at=now)


def decided(
    state: TransactionStored,
    commit: bool,
    now: Millis,
    *,
    bumps: bool,
    next_producer_id: ProducerId = NO_PRODUCER,
    by_itself: bool = True,
) -> TransactionStored:
    """How the transaction ends is settled; its markers follow, if it has partitions at all.

    With ``bumps`` the writes' epoch ends with the transaction: nothing that is late can join
    another one.
    """
    epoch, last = state.epoch, NO_PRODUCER_EPOCH
    if bumps:
        epoch = ProducerEpoch(epoch + 1)
        if by_itself and (epoch < EPOCH_MAX or next_producer_id != NO_PRODUCER):
            last = state.epoch
    ended = state._replace(
        epoch=epoch,
        last_epoch=last,
        next_producer_id=next_producer_id,
        state=TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT,
        updated_at=now,
        started_at=now if is_idle(state) else state.started_at,
        prepared_at=NO_TIMESTAMP,
    )
    return ended if ended.partitions else completed(ended, now)


def completed(state: TransactionStored, now: Millis) -> TransactionStored:
    """All markers are written."""
    ended = state._replace(
        state=TxnState.COMPLETE_COMMIT if is_committed(state) else TxnState.COMPLETE_ABORT,
        updated_at=now,
        partitions=(),
        next_producer_id=NO_PRODUCER,
    )
    if state.next_producer_id == NO_PRODUCER:
        return ended
    return ended._replace(
        producer_id=state.next_producer_id, epoch=_FIRST, previous_producer_id=state.producer_id
    )


def settled(state: TransactionStored) -> TransactionStored:
    """The state as it will be once markers that are due are written."""
    return completed(state, state.updated_at) if is_ending(state) else state


def follows(state: TransactionStored, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
    """Whether ``state`` came right after that epoch of the same producer, by its own doing."""
    if epoch == NO_PRODUCER_EPOCH or epoch != state.last_epoch:
        return False
    if state.epoch == _FIRST:
        return producer_id == state.previous_producer_id
    return producer_id == state.producer_id
