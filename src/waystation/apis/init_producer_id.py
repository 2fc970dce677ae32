"""InitProducerId: an identity under which no record is written twice."""

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from waystation.model.errors import ErrorCode, WaystationError

_EPOCH_MAX = (1 << 15) - 2


async def answer(broker: Broker, call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    """A new id, or the next epoch of the one that the producer already has."""
    request = call.message
    if request.transactional_id is not None:
        # Transactions are not served yet; an id without them would promise too much.
        return InitProducerIdResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if request.producer_id >= 0 and 0 <= request.producer_epoch < _EPOCH_MAX:
        return InitProducerIdResponse(
            producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1
        )
    try:
        return InitProducerIdResponse(producer_id=await broker.producer_ids.take())
    except WaystationError as error:
        return InitProducerIdResponse(error_code=error.code)
