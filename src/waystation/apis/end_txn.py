"""EndTxn: commit or abort, from any process that knows whose transaction it is."""

from waystation.apis.call import Call
from waystation.apis.transactional import answer_of, code_of, id_if_needed
from waystation.broker.broker import Broker
from waystation.messages.end_txn import BUMPS_FROM, EndTxnRequest, EndTxnResponse
from waystation.model.errors import WaystationError
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.transactions.commands import End, Ended


async def answer(broker: Broker, call: Call[EndTxnRequest]) -> EndTxnResponse:
    """Answered once the decision is committed; its markers may still be on their way."""
    try:
        ended = await _end(broker, call.message, bumps=call.version >= BUMPS_FROM)
    except WaystationError as error:
        return EndTxnResponse(error_code=code_of(error, call.version))
    return EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.epoch)


async def _end(broker: Broker, request: EndTxnRequest, *, bumps: bool) -> Ended:
    name = request.transactional_id
    writer = ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
    fresh = await id_if_needed(broker, name, *writer) if bumps else None
    end = End(name, *writer, request.committed, bumps, fresh)
    ended: Ended = await answer_of(
        broker, name, lambda transactions, now, to: transactions.end(now, end, to)
    )
    return ended
