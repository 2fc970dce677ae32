"""InitProducerId: an identity under which no record is written twice.

With a transactional id it is the same identity each time, under a newer epoch that fences whoever
had it before; a transaction that one left behind is aborted first.
"""

from waystation.apis.call import Call
from waystation.apis.transactional import answer_of, code_of, id_if_needed
from waystation.broker.broker import Broker
from waystation.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from waystation.model.errors import InvalidRequestError, WaystationError
from waystation.model.ids import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    ProducerEpoch,
    ProducerId,
)
from waystation.transactions.commands import Init, Initialised

_FENCED_FROM_VERSION = 4


async def answer(broker: Broker, call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    """Who the producer is from now on.

    One without transactions that names the id it had gets another one: only who gave an id out
    could tell whether the one who names it is its owner.
    """
    try:
        found = await _identity(broker, call.message)
    except WaystationError as error:
        return InitProducerIdResponse(
            error_code=code_of(error, call.version, _FENCED_FROM_VERSION),
            producer_id=NO_PRODUCER,
            producer_epoch=NO_PRODUCER_EPOCH,
        )
    return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch)


async def _identity(broker: Broker, request: InitProducerIdRequest) -> Initialised:
    had = ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
    if (had[0] == NO_PRODUCER) != (had[1] == NO_PRODUCER_EPOCH):
        raise InvalidRequestError("a producer id without its epoch, or an epoch without its id")
    if request.transactional_id is None:
        return Initialised(await broker.producer_ids.take(), ProducerEpoch(0))
    name = request.transactional_id
    fresh = await id_if_needed(broker, name, *had)
    init = Init(name, request.transaction_timeout_ms, *had, fresh)
    found: Initialised = await answer_of(
        broker, name, lambda transactions, now, to: transactions.init(now, init, to)
    )
    return found
