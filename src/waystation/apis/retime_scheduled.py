"""RetimeScheduled: messages that go at another time (``docs/protocol/schedules.md``)."""

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.apis.scheduled import check_wishes, place_of
from waystation.broker.broker import Broker
from waystation.messages.retime_scheduled import (
    RetimedMessage,
    RetimeScheduledRequest,
    RetimeScheduledResponse,
)
from waystation.model.errors import WaystationError
from waystation.model.offsets import Millis, Offset


async def answer(broker: Broker, call: Call[RetimeScheduledRequest]) -> RetimeScheduledResponse:
    """Answered once a crash cannot take it back."""
    request = call.message
    wishes = [(Offset(one.offset), Millis(one.due_ms)) for one in request.wishes]
    try:
        check_wishes(wishes)
        place = place_of(request.topic, request.partition)
        outcomes = await broker.schedules.retime(*place, wishes)
    except WaystationError as error:
        return RetimeScheduledResponse(error_code=error.code, error_message=str(error))
    results = [
        RetimedMessage(offset=offset, error_code=code, error_message=said)
        for (offset, _), (code, said) in zip(wishes, map(told, outcomes), strict=True)
    ]
    return RetimeScheduledResponse(results=results)
