"""PrepareTxn: the first phase of a two-phase commit (``docs/protocol/two-phase-commit.md``)."""

from waystation.apis.call import Call
from waystation.apis.transactional import answer_of
from waystation.broker.broker import Broker
from waystation.messages.prepare_txn import PrepareTxnRequest, PrepareTxnResponse
from waystation.model.errors import WaystationError
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.transactions.commands import Prepare


async def answer(broker: Broker, call: Call[PrepareTxnRequest]) -> PrepareTxnResponse:
    """Answered once a crash cannot take it back."""
    request = call.message
    prepare = Prepare(
        request.transactional_id,
        ProducerId(request.producer_id),
        ProducerEpoch(request.producer_epoch),
    )
    try:
        await answer_of(
            broker,
            request.transactional_id,
            lambda transactions, now, to: transactions.prepare(now, prepare, to),
        )
    except WaystationError as error:
        return PrepareTxnResponse(error_code=error.code, error_message=str(error))
    return PrepareTxnResponse()
