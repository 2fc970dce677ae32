"""RedriveDeadLetters: dead letters go back (``docs/protocol/dead-letters.md``)."""

from waystation.apis.call import Call
from waystation.apis.redrives import told_redrive
from waystation.broker.broker import Broker
from waystation.messages.redrive_dead_letters import (
    NO_LIMIT,
    RedriveDeadLettersRequest,
    RedriveDeadLettersResponse,
)
from waystation.model.errors import WaystationError
from waystation.model.offsets import Millis, Offset
from waystation.sharing.redrive import RedriveOrder

_FOREVER = (1 << 63) - 1


async def answer(
    broker: Broker, call: Call[RedriveDeadLettersRequest]
) -> RedriveDeadLettersResponse:
    """Answered once the order is stored."""
    request = call.message
    order = RedriveOrder(
        request.redrive_id,
        Offset(request.first_offset),
        Offset(_FOREVER if request.end_offset == NO_LIMIT else request.end_offset),
        request.where,
        Millis(max(request.since_ms, 0)),
        Millis(_FOREVER if request.until_ms == NO_LIMIT else request.until_ms),
        request.to_topic,
        request.rate,
        request.total_rate,
        tuple(request.together),
    )
    try:
        broker.check_writable(request.topic)
        begun = await broker.redrives.desk(request.topic, request.partition).begin(order)
    except WaystationError as error:
        return RedriveDeadLettersResponse(error_code=error.code, error_message=str(error))
    return RedriveDeadLettersResponse(redrive=told_redrive(begun))
