"""CancelRedrive: an order is carried out no further (``docs/protocol/dead-letters.md``)."""

from waystation.apis.call import Call
from waystation.apis.redrives import told_redrive
from waystation.broker.broker import Broker
from waystation.messages.cancel_redrive import CancelRedriveRequest, CancelRedriveResponse
from waystation.model.errors import WaystationError


async def answer(broker: Broker, call: Call[CancelRedriveRequest]) -> CancelRedriveResponse:
    """Answered once it is stored that the order is over."""
    request = call.message
    try:
        desk = broker.redrives.desk(request.topic, request.partition)
        redrive = await desk.cancel(request.redrive_id)
    except WaystationError as error:
        return CancelRedriveResponse(error_code=error.code, error_message=str(error))
    return CancelRedriveResponse(redrive=told_redrive(redrive))
