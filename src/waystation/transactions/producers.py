"""Who may take over a transactional id, and who may write in its transaction.

1. Taking over fences everyone before: their epoch is never the present one again, and what they
   had begun is aborted first.
2. A producer that repeats a request whose answer it missed is told the same again, unless
   somebody has taken over since.
3. A partition joins the transaction of exactly the producer and epoch that asks.
"""

from waystation.model.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadingError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    TransactionAbortableError,
    WaystationError,
)
from waystation.model.ids import NO_PRODUCER, ProducerId, TopicPartition
from waystation.model.offsets import Millis
from waystation.transactions.commands import Add, Added, Init, Initialised
from waystation.transactions.decision import (
    WAITS,
    Decision,
    check_id,
    check_producer,
    fenced,
    known,
    too_early,
)
from waystation.transactions.lifecycle import (
    bumped,
    decided,
    emptied,
    follows,
    is_ending,
    is_exhausted,
    joined,
    new,
    rotated,
    settled,
)
from waystation.transactions.records import TransactionStored, TxnState

NO_TIMEOUT_MS = (1 << 31) - 1


# --- InitProducerId -----------------------------------------------------------------------------


def init(
    state: TransactionStored | None, command: Init, now: Millis, timeout_max_ms: int
) -> Decision:
    """Whether and as whom the producer may begin."""
    check_id(command.transactional_id)
    timeout_ms = _timeout_ms(command, timeout_max_ms)
    if state is None:
        fresh = required(command.fresh)
        return _initialised(new(command.transactional_id, fresh, timeout_ms, now))
    _check_expected(settled(state), command)
    if state.is_prepared:
        raise ConcurrentTransactionsError(
            f"{state.transactional_id!r} has a prepared transaction (producer {state.producer_id}, "
            f"epoch {state.epoch}): nothing else can begin before it is ended"
        )
    if is_ending(state):
        return WAITS
    if state.state is TxnState.ONGOING:
        by_itself = command.producer_id != NO_PRODUCER
        return WAITS._replace(becomes=decided(state, False, now, bumps=True, by_itself=by_itself))
    return _initialised(_next(state, command, timeout_ms, now))


def required(fresh: ProducerId | None) -> ProducerId:
    """A producer id that nobody has had, or a refusal that is over once there is one."""
    if fresh is None:
        raise CoordinatorLoadingError("no producer id is at hand: ask again")
    return fresh


def _timeout_ms(command: Init, most_ms: int) -> int:
    if command.two_phase:
        return NO_TIMEOUT_MS
    if not 0 < command.timeout_ms <= most_ms:
        raise InvalidTransactionTimeoutError(
            f"a transaction time-out of {command.timeout_ms} ms: it must be positive and at most "
            f"{most_ms} (transaction.max.timeout.ms)"
        )
    return command.timeout_ms


def _check_expected(state: TransactionStored, command: Init) -> None:
    """Refuse a producer that says who it was, and is not that any more."""
    if command.producer_id == NO_PRODUCER:
        return
    is_present = (command.producer_id, command.epoch) == (state.producer_id, state.epoch)
    if not is_present and not _asks_again(state, command):
        raise fenced(state, command.epoch)


def _asks_again(state: TransactionStored, command: Init) -> bool:
    is_under_way = state.state is TxnState.ONGOING  # then it was told, and has gone on
    return not is_under_way and follows(state, command.producer_id, command.epoch)


def _next(
    state: TransactionStored, command: Init, timeout_ms: int, now: Millis
) -> TransactionStored:
    if _asks_again(state, command):
        return emptied(state, timeout_ms, now)
    by_itself = command.producer_id != NO_PRODUCER
    if is_exhausted(state.epoch):
        fresh = required(command.fresh)
        return rotated(state, fresh, timeout_ms, now, by_itself=by_itself)
    return bumped(state, timeout_ms, now, by_itself=by_itself)


def _initialised(state: TransactionStored) -> Decision:
    return Decision(Initialised(state.producer_id, state.epoch), state)


# --- AddPartitionsToTxn and the writes that stand for it ----------------------------------------


def add(state: TransactionStored | None, command: Add, now: Millis) -> Decision:
    """Whether the partitions are, or become, part of the producer's transaction."""
    present = known(state, command.transactional_id)
    check_producer(settled(present), command.producer_id, command.epoch)
    if is_ending(present):
        if not command.patient:
            raise too_early(command.transactional_id)
        return WAITS
    if present.is_prepared:
        raise InvalidTxnStateError(
            f"the transaction of {present.transactional_id!r} is prepared: nothing may be added"
        )
    if command.verify_only:
        return Decision(_verified(present, command))
    answer = Added(dict.fromkeys(sorted(command.partitions)))
    if present.state is TxnState.ONGOING and command.partitions.issubset(present.partitions):
        return Decision(answer)
    return Decision(answer, joined(present, command.partitions, now, implicit=command.implicit))


def _verified(state: TransactionStored, command: Add) -> Added:
    errors: dict[TopicPartition, WaystationError | None] = {}
    for partition in sorted(command.partitions):
        is_part = partition in state.partitions
        errors[partition] = None if is_part else _no_part(state, partition)
    return Added(errors)


def _no_part(state: TransactionStored, partition: TopicPartition) -> WaystationError:
    return TransactionAbortableError(
        f"{partition} is no part of the transaction of {state.transactional_id!r}: abort it"
    )
