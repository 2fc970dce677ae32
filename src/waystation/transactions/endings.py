"""How transactions end, and who may end them.

1. A transaction ends once: whoever repeats the request that ended it is told the same again,
   whoever asks for the other result is refused.
2. A prepared transaction ends by ``End`` with its transactional id, producer id and epoch, from
   its owner or an operator, or by the operator's limit; a prepared epoch is never used for another
   transaction.
3. A transaction that ends without its producer asking for it, ends under an epoch that the
   producer does not have: nothing it sends late can count.
"""

from waystation.model.errors import InvalidTxnStateError, WaystationError
from waystation.model.ids import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    ProducerEpoch,
    ProducerId,
)
from waystation.model.offsets import NO_TIMESTAMP, Millis
from waystation.transactions.commands import (
    ABORTED,
    ABORTED_BY_LIMIT,
    ABORTING,
    COMMITTED,
    COMMITTING,
    ONGOING,
    PREPARED,
    UNKNOWN,
    End,
    Ended,
    Prepare,
    Prepared,
    TransactionOutcome,
)
from waystation.transactions.decision import WAITS, Decision, check_id, check_producer, known
from waystation.transactions.lifecycle import (
    WRITTEN_BY_WRITES,
    decided,
    follows,
    is_committed,
    is_ending,
    is_exhausted,
    prepared,
    settled,
)
from waystation.transactions.producers import required
from waystation.transactions.records import Ending, OutcomeStored, TransactionStored, TxnState

_WORDS = {
    Ending.COMMITTED: COMMITTED,
    Ending.ABORTED: ABORTED,
    Ending.ABORTED_BY_LIMIT: ABORTED_BY_LIMIT,
}
_NOBODY = Ended(NO_PRODUCER, NO_PRODUCER_EPOCH)


# --- EndTxn -------------------------------------------------------------------------------------


def end(
    state: TransactionStored | None, outcome: OutcomeStored | None, command: End, now: Millis
) -> Decision:
    """Commit or abort, or tell again; ``outcome`` is how a prepared one of that epoch ended."""
    check_id(command.transactional_id)
    if outcome is not None:
        return _ended_before(state, outcome, command)
    present = known(state, command.transactional_id)
    if _ended_just_now(present, command):
        if is_committed(present) != command.commit:
            raise _ended_otherwise(present, command)
        return Decision(_successor(present))
    check_producer(settled(present), command.producer_id, command.epoch)
    if present.state is TxnState.ONGOING:
        return _decide(present, command, now)
    return _end_nothing(present, command, now)


def _ended_before(
    state: TransactionStored | None, outcome: OutcomeStored, command: End
) -> Decision:
    if (outcome.ending is Ending.COMMITTED) != command.commit:
        raise InvalidTxnStateError(
            f"the prepared transaction of {command.transactional_id!r} (producer "
            f"{command.producer_id}, epoch {command.epoch}) was {_WORDS[outcome.ending]}"
        )
    is_last = state is not None and follows(state, command.producer_id, command.epoch)
    if state is None or not is_last or state.state is TxnState.ONGOING:
        return Decision(_NOBODY)
    return Decision(_successor(state))


def _ended_just_now(state: TransactionStored, command: End) -> bool:
    """Whether the last thing that happened is what the command asks for, or its opposite."""
    if state.state in (TxnState.EMPTY, TxnState.ONGOING):
        return False
    if command.bumps:
        return follows(state, command.producer_id, command.epoch)
    # The classic flow: its transactions share an epoch, and the present one is over.
    is_present = (command.producer_id, command.epoch) == (state.producer_id, state.epoch)
    return is_present and state.last_epoch == NO_PRODUCER_EPOCH


def _decide(state: TransactionStored, command: End, now: Millis) -> Decision:
    bumps = command.bumps or state.is_prepared
    fresh = NO_PRODUCER
    if command.bumps and is_exhausted(state.epoch):
        fresh = required(command.fresh)
    ended = decided(state, command.commit, now, bumps=bumps, next_producer_id=fresh)
    ending = Ending.COMMITTED if command.commit else Ending.ABORTED
    return Decision(_successor(ended), ended, _outcome(state, ending, now))


def _end_nothing(state: TransactionStored, command: End, now: Millis) -> Decision:
    """A transaction without a single partition can only be aborted, for the sake of the epoch."""
    if command.commit or not command.bumps:
        raise InvalidTxnStateError(
            f"{state.transactional_id!r} has no transaction at epoch {command.epoch} to "
            f"{'commit' if command.commit else 'abort'} (it is {state.state.shown})"
        )
    if is_ending(state):
        return WAITS
    fresh = required(command.fresh) if is_exhausted(state.epoch) else NO_PRODUCER
    ended = decided(state, False, now, bumps=True, next_producer_id=fresh)
    return Decision(_successor(ended), ended)


def _successor(state: TransactionStored) -> Ended:
    then = settled(state)
    return Ended(then.producer_id, then.epoch)


def _ended_otherwise(state: TransactionStored, command: End) -> WaystationError:
    was = "committed" if is_committed(state) else "aborted"
    return InvalidTxnStateError(
        f"the transaction of {command.transactional_id!r} at epoch {command.epoch} was {was} "
        f"already: it cannot be {'committed' if command.commit else 'aborted'}"
    )


def _outcome(state: TransactionStored, ending: Ending, now: Millis) -> OutcomeStored | None:
    """What is kept of a prepared transaction."""
    if not state.is_prepared:
        return None
    return OutcomeStored(state.transactional_id, state.producer_id, state.epoch, ending, now)


# --- without the producer -----------------------------------------------------------------------


def give_up(state: TransactionStored, ending: Ending, now: Millis) -> Decision:
    """Abort what is under way, since its time or the operator's limit is over.

    Its producer finds out, aborts too, and may go on under the epoch after this one.
    """
    ended = decided(state, False, now, bumps=True)
    return Decision(_successor(ended), ended, _outcome(state, ending, now))


# --- two-phase commit ---------------------------------------------------------------------------


def prepare(
    state: TransactionStored | None, outcome: OutcomeStored | None, command: Prepare, now: Millis
) -> Decision:
    """Let the transaction wait for its end."""
    check_id(command.transactional_id)
    if outcome is not None:
        raise InvalidTxnStateError(
            f"the prepared transaction of {command.transactional_id!r} at epoch {command.epoch} "
            f"was {_WORDS[outcome.ending]} already"
        )
    present = known(state, command.transactional_id)
    check_producer(settled(present), command.producer_id, command.epoch)
    if present.state is not TxnState.ONGOING:
        raise InvalidTxnStateError(
            f"{present.transactional_id!r} has no transaction at epoch {command.epoch} to prepare: "
            "nothing was written in it"
        )
    if present.is_prepared:
        return Decision(Prepared())
    if present.client_version != WRITTEN_BY_WRITES:
        raise InvalidTxnStateError(
            "in the classic flow transactions share an epoch, and a late request could prepare "
            "the wrong one: write with Produce v12+ and TxnOffsetCommit v5+"
        )
    return Decision(Prepared(), prepared(present, now))


def look_up(
    state: TransactionStored | None,
    outcome: OutcomeStored | None,
    producer_id: ProducerId,
    epoch: ProducerEpoch,
) -> TransactionOutcome:
    """How the transaction of that producer and epoch stands, or ended, as far as is known."""
    is_last = state is not None and _names_last(state, producer_id, epoch)
    if outcome is not None and not (is_last and state is not None and is_ending(state)):
        return TransactionOutcome(_WORDS[outcome.ending], outcome.at)
    if state is None:
        return TransactionOutcome(UNKNOWN, NO_TIMESTAMP)
    if state.state is TxnState.ONGOING:
        return _under_way(state, producer_id, epoch)
    if not is_last or state.state is TxnState.EMPTY:
        return TransactionOutcome(UNKNOWN, NO_TIMESTAMP)
    words = (COMMITTING, ABORTING) if is_ending(state) else (COMMITTED, ABORTED)
    return TransactionOutcome(words[not is_committed(state)], state.updated_at)


def _under_way(
    state: TransactionStored, producer_id: ProducerId, epoch: ProducerEpoch
) -> TransactionOutcome:
    if (producer_id, epoch) != (state.producer_id, state.epoch):
        return TransactionOutcome(UNKNOWN, NO_TIMESTAMP)
    if state.is_prepared:
        return TransactionOutcome(PREPARED, state.prepared_at)
    return TransactionOutcome(ONGOING, state.started_at)


def _names_last(state: TransactionStored, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
    """Whether the transaction that is ending, or ended last, was of that epoch."""
    if state.last_epoch != NO_PRODUCER_EPOCH:
        return follows(state, producer_id, epoch)
    return (producer_id, epoch) == (state.producer_id, state.epoch)
