"""ListTransactions: the transactional ids that this broker coordinates."""

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from waystation.model.errors import ErrorCode
from waystation.transactions.machine import PREPARED_SHOWN
from waystation.transactions.records import TxnState

# Some of Kafka's are never seen here, but clients may ask for them.
_STATES = {PREPARED_SHOWN, "Dead", "PrepareEpochFence", *(state.shown for state in TxnState)}


def answer(broker: Broker, call: Call[ListTransactionsRequest]) -> ListTransactionsResponse:
    """Those that pass every filter."""
    request = call.message
    unknown = [state for state in request.state_filters if state not in _STATES]
    if broker.transactions.loading:
        return ListTransactionsResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, unknown_state_filters=unknown
        )
    now = broker.clock.now()
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.state,
            )
            for machine in broker.transactions.machines()
            for one in machine.list(
                now, request.state_filters, request.producer_id_filters, request.duration_filter
            )
        ],
    )
