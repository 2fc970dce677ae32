"""InitProducerId: an identity under which no record is written twice."""

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from waystation.model.errors import ErrorCode, WaystationError


async def answer(broker: Broker, call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    """A new id each time.

    A producer without transactions that names the id it had gets another one: only who gave an
    id out could tell whether the one who names it is its owner.
    """
    request = call.message
    if request.transactional_id is not None:
        # Transactions are not served yet; an id without them would promise too much.
        empty = not request.transactional_id
        return _refused(ErrorCode.INVALID_REQUEST if empty else ErrorCode.UNSUPPORTED_VERSION)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        return InitProducerIdResponse(producer_id=await broker.producer_ids.take())
    except WaystationError as error:
        return _refused(error.code)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
