"""How a transaction stands, asked of its coordinator, and what is told of one that ended."""

import asyncio
from typing import TYPE_CHECKING, Final

from waystation.client.transaction_descriptions import ONGOING, PREPARED, TransactionDescription
from waystation.gateway.problems import ProblemError, refusal
from waystation.gateway.transaction_bodies import TransactionState, TransactionTopic
from waystation.gateway.transaction_ids import TransactionId
from waystation.model.errors import ErrorCode, TransactionalIdNotFoundError, WaystationError
from waystation.model.offsets import Millis

if TYPE_CHECKING:
    from waystation.gateway.clients import Clients

__all__ = [
    "ABORTED",
    "COMMITTED",
    "COMMITTING",
    "EMPTY",
    "OPEN",
    "UNKNOWN",
    "ended_problem",
    "has_ended",
    "settled",
    "state_of",
    "unknown_problem",
]

OPEN, COMMITTING, COMMITTED = "open", "committing", "committed"
ABORTED, UNKNOWN = "aborted", "unknown"
EMPTY = "Empty"
"""Kafka's word for a transactional id that was taken over, and nothing written yet."""
_UNDER_WAY: Final = (COMMITTING, "aborting")
_OPEN: Final = {ONGOING: OPEN, PREPARED: "prepared", EMPTY: OPEN}
_PAUSES_S: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0, 1.0)
_OF_THE_END: Final = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)


async def state_of(clients: "Clients", id_: TransactionId) -> TransactionState:
    """How it stands or ended; ``UNKNOWN`` if its transactional id is another's by now."""
    admin = await clients.admin()
    name, identity = id_.transactional_id, id_.identity
    try:
        found = (await admin.describe_transactions(name))[name]
    except TransactionalIdNotFoundError:
        return TransactionState(str(id_), UNKNOWN, id_.expires_at)
    if found.state in _OPEN and (found.producer, found.epoch) == identity:
        return TransactionState(str(id_), _OPEN[found.state], id_.expires_at, _topics(found))
    outcome = await admin.transaction_outcome(name, *identity)
    state = ABORTED if outcome.state.startswith(ABORTED) else outcome.state
    return TransactionState(str(id_), state, id_.expires_at)


async def settled(clients: "Clients", id_: TransactionId, wanted: str) -> TransactionState:
    """How it stands once readers see the end; the decision is made, so that this is not awaited
    for long.
    """
    for pause_s in _PAUSES_S:
        found = await state_of(clients, id_)
        if found.state not in _UNDER_WAY:
            break
        await asyncio.sleep(pause_s)
    # Whoever began the next one by now has not changed how this one ended.
    return TransactionState(str(id_), wanted, id_.expires_at) if found.state == UNKNOWN else found


def has_ended(error: WaystationError) -> bool:
    """Whether ``error`` says that the transaction is no longer the one to write to."""
    return error.code in _OF_THE_END


def ended_problem(id_: TransactionId, state: str, now: Millis) -> ProblemError:
    """Why nothing can be done with a transaction that stands so."""
    if state == UNKNOWN:
        return unknown_problem(id_)
    if state.startswith("abort") and id_.expires_at <= now:
        return refusal(
            410,
            "transaction-timed-out",
            "the time of the transaction is over: it was aborted",
            field="transaction",
            remedy="begin another one, with a longer timeout_ms if need be",
        )
    if state in (OPEN, "prepared"):
        return refusal(
            409,
            "transaction-busy",
            f"the transaction is {state}, and its coordinator refused this",
            field="transaction",
            remedy="try again, or abort it",
        )
    done = "committed" if state.startswith("commit") else "aborted"
    return refusal(
        409,
        "transaction-ended",
        f"the transaction was {done} already",
        field="transaction",
        remedy="begin another one",
    )


def unknown_problem(id_: TransactionId) -> ProblemError:
    """Nobody remembers it."""
    return refusal(
        404,
        "unknown-transaction",
        "the transaction is not known any more: it was committed or aborted a while ago, or its "
        "time was over",
        field="transaction",
        remedy="read what it would have written to see how it ended; begin another one",
    )


def _topics(found: TransactionDescription) -> list[TransactionTopic]:
    topics: dict[str, list[int]] = {}
    for name, number in found.partitions:
        topics.setdefault(name, []).append(number)
    return [TransactionTopic(name, sorted(numbers)) for name, numbers in sorted(topics.items())]
