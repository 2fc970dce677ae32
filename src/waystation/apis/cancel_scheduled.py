"""CancelScheduled: messages that are never delivered (``docs/protocol/schedules.md``)."""

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.apis.scheduled import check_wishes, place_of
from waystation.broker.broker import Broker
from waystation.messages.cancel_scheduled import (
    CancelledMessage,
    CancelScheduledRequest,
    CancelScheduledResponse,
)
from waystation.model.errors import WaystationError
from waystation.model.offsets import Offset


async def answer(broker: Broker, call: Call[CancelScheduledRequest]) -> CancelScheduledResponse:
    """Answered once a crash cannot take it back."""
    request = call.message
    offsets = [Offset(one) for one in request.offsets]
    try:
        check_wishes(offsets)
        place = place_of(request.topic, request.partition)
        outcomes = await broker.schedules.cancel(*place, offsets)
    except WaystationError as error:
        return CancelScheduledResponse(error_code=error.code, error_message=str(error))
    results = [
        CancelledMessage(offset=offset, error_code=code, error_message=said)
        for offset, (code, said) in zip(offsets, map(told, outcomes), strict=True)
    ]
    return CancelScheduledResponse(results=results)
