"""TxnOutcome: what became of a prepared transaction (``docs/protocol/two-phase-commit.md``)."""

from waystation.apis.call import Call
from waystation.apis.transactional import answer_of
from waystation.broker.broker import Broker
from waystation.messages.txn_outcome import TxnOutcomeRequest, TxnOutcomeResponse
from waystation.model.errors import WaystationError
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.transactions.commands import UNKNOWN, TransactionOutcome


async def answer(broker: Broker, call: Call[TxnOutcomeRequest]) -> TxnOutcomeResponse:
    """How it stands or ended; trouble with the coordinator is the only error."""
    request = call.message
    name = request.transactional_id
    writer = ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
    try:
        found: TransactionOutcome = await answer_of(
            broker, name, lambda transactions, now, to: transactions.outcome(now, name, *writer, to)
        )
    except WaystationError as error:
        return TxnOutcomeResponse(error_code=error.code, error_message=str(error), state=UNKNOWN)
    return TxnOutcomeResponse(state=found.state, at_ms=found.at)
